"""The API description: served, complete, and kept to under every request that can be made from it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.client import STATUS, SUBMIT
from tests.acceptance.list_client import PREFIX

MESSAGES = Path(__file__).with_name("schemathesis_messages.py")
FULL = os.environ.get("MAILWARDEN_FULL") == "1"
EXAMPLES = "100" if FULL else "5"  # for each operation and phase
PHASES = "examples,coverage,fuzzing,stateful" if FULL else "coverage,fuzzing"
SCHEMATHESIS = Path(sys.executable).parent / "schemathesis"


@pytest.fixture(scope="module")
def description(client):
    answer = client.using(None).call("GET", "/openapi.json")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    return answer.json


@pytest.mark.spec("9 version")
def test_the_description_is_openapi_3_1_of_this_version(description):
    assert description["openapi"].startswith("3.1.")
    assert description["info"]["version"] == "1.1.0"


def test_every_route_is_described_and_answers(description, client):
    assert {SUBMIT, STATUS, "/v1/messages/{ggrid}", "/metrics", "/healthz", "/readyz", "/openapi.json"} <= set(
        description["paths"]
    )
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            assert operation["operationId"]
            assert {"200", "202", "204"} & set(operation["responses"])
            place = path.replace("{ggrid}", "17").replace("{uid}", "17")
            assert client.call(method.upper(), place).status not in (405, 500)


@pytest.mark.spec("4 submitEmail multipart")
@pytest.mark.contract("3 six fields")
def test_the_records_are_those_of_the_specification(description):
    schemas = description["components"]["schemas"]

    result = schemas["MessageAnalysisResult"]
    assert set(result["properties"]) == {"ggrid", "created", "completed", "decision", "verdict", "tags"}
    assert schemas["Decision"]["enum"] == ["undecided", "deliver", "quarantine", "bounce", "drop"]
    assert result["properties"]["decision"]["$ref"] == "#/components/schemas/Decision"
    assert set(schemas["MessageAnalysisRequest"]["properties"]) == {"borderMtaData", "tenantUid"}
    assert schemas["StatusColour"]["enum"] == ["GREEN", "YELLOW", "RED"]
    assert "error" in schemas["Error"]["required"]
    upload = description["paths"][SUBMIT]["post"]["requestBody"]["content"]["multipart/form-data"]
    assert upload["encoding"]["parameters"]["contentType"] == "application/json"


@pytest.mark.spec("4 addEntries")
@pytest.mark.spec("4 deleteEntries")
@pytest.mark.contract("4 required")
def test_the_list_operations_describe_their_input(description):
    schemas, paths = description["components"]["schemas"], description["paths"]
    both = ["listName", "entries"]
    for name, required in (("AddEntries", both), ("DeleteEntries", both), ("ListEntries", ["listName"])):
        assert schemas[name]["required"] == required
        assert schemas[name]["additionalProperties"] is False
        operation = paths[f"{PREFIX}/{name[0].lower()}{name[1:]}"]["post"]
        assert operation["security"] == [{"key": []}]
        assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(f"/{name}")
    assert schemas["AddEntries"]["properties"]["entries"]["maxItems"] == 500
    assert "application/x-ndjson" in paths[f"{PREFIX}/listEntries"]["post"]["responses"]["200"]["content"]


def run_schemathesis(client, folder, authorization: str, *options: str) -> None:
    done = subprocess.run(
        [
            str(SCHEMATHESIS), "run", f"{client.url}/openapi.json",
            "--tls-verify", str(client.ca),
            "--header", f"Authorization: {authorization}",
            "--checks", "all",
            "--generation-deterministic",
            "--request-timeout", "30",
            "--continue-on-failure",
            "--no-color",
            *options,
        ],
        check=False, capture_output=True, text=True, timeout=600, cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(MESSAGES)},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-8_000:]


@pytest.mark.slow
def test_schemathesis_finds_no_failure(client, tmp_path):
    # A held message that was deleted is still told of, as deleted.
    options = ["--exclude-checks", "use_after_free", "--phases", PHASES, "--max-examples", EXAMPLES]
    # Events wait as long as a call asks for, and a well-formed cursor may be expired (410): test_events.py calls them.
    options += ["--exclude-path", "/v1/events"]
    run_schemathesis(client, tmp_path, f"Bearer {client.token}", *options)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["all", pytest.param("acme", marks=pytest.mark.long)])
def test_schemathesis_finds_no_failure_in_the_list_api(client, deployment, key, tmp_path):
    # What an entry may be is more than a schema can say: a well-formed call may be answered 422.
    options = ["--include-path-regex", PREFIX, "--exclude-checks", "positive_data_acceptance"]
    options += ["--phases", "coverage,fuzzing", "--max-examples", EXAMPLES]
    run_schemathesis(client, tmp_path, f"apikey {deployment.keys[key]}", *options)
