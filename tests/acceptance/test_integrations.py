"""The shipped integrations with a real abby: the requests of n8n always, the others with their own runtime.

`make check-long` installs the runtimes from requirements/integrations.txt.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from mailwarden.access.permissions import KeyScope
from mailwarden.model.outcome import Verdict
from tests.acceptance.client import Answer
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.held import keep
from tests.conventions.project_files import ROOT
from workshop.rig.samples import spam_message

CLIENTS = ROOT / "clients"
TOOLS = ROOT / "run" / "integrations"
with_runtimes = pytest.mark.long


@pytest.fixture(scope="module")
def key(deployment: Deployment) -> str:
    scopes = [word for scope in KeyScope for word in ("--scope", scope)]
    words = ("keys", "create", "integrations", *scopes, "--global", "-o", "json")
    return str(json.loads(run_command(*words, "--config", str(deployment.product.abby.folder)))["key"])


@pytest.fixture(scope="module")
def tools() -> Path:
    sys.path.insert(0, str(ROOT / "packaging" / "test"))
    from locked_tools import install_tools

    install_tools(TOOLS, "integrations")
    return TOOLS / "bin"


def run(command: list[str], **environment: str) -> str:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "ANSIBLE"))}
    found = {**plain, "PYTHONPATH": str(ROOT / "src"), "LC_ALL": "C.UTF-8", **environment}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=found)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


WORKFLOW = json.loads((CLIENTS / "n8n" / "block-phishing-senders.json").read_text("utf-8"))
NODES = {node["name"]: node for node in WORKFLOW["nodes"]}


def test_the_workflow_of_n8n_is_one_chain() -> None:
    assert len(NODES) == len(WORKFLOW["nodes"]) == len({node["id"] for node in WORKFLOW["nodes"]})
    for node in WORKFLOW["nodes"]:
        assert set(node) >= {"id", "name", "type", "typeVersion", "position", "parameters"}
        assert node["type"].startswith("n8n-nodes-base.")
    name, seen = "Every hour", ["Every hour"]
    while links := WORKFLOW["connections"].get(name):
        ((link,),) = links["main"]
        name = link["node"]
        seen.append(name)
    assert seen == list(NODES)


def test_the_requests_of_the_n8n_workflow_work(deployment: Deployment, key: str) -> None:
    sender = f"{uuid4().hex}@phish.example"
    keep(deployment, "bank", sender=sender, verdict=Verdict.PHISHING)

    def send(name: str, item: dict[str, Any]) -> Answer:
        given = NODES[name]["parameters"]
        path = given["url"].removeprefix("={{ $env.MAILWARDEN_URL }}")
        pairs = given["queryParameters"]["parameters"] if given.get("sendQuery") else []
        query = "&".join(f"{each['name']}={each['value']}" for each in pairs)
        headers = {"Authorization": f"apikey {key}", "Content-Type": "application/json"}
        body = json.dumps(evaluated(given["jsonBody"], item)).encode() if "jsonBody" in given else None
        address = f"{path}?{query}" if query else path
        return deployment.client().using(None).call(given["method"], address, headers=headers, data=body)

    found = send("Search phishing", {})
    assert found.status == 200, found.body
    field = NODES["One item a message"]["parameters"]["fieldToSplitOut"]
    (item,) = (each for each in found.json[field] if each["fromAddress"] == sender)
    blocked = send("Block the sender", item)
    assert blocked.json == {"modifiedEntries": 1}
    assert sender in {each["entry"] for each in deployment.lists("all", "bank").entries("sender-block")}


def evaluated(expression: str, item: dict[str, Any]) -> Any:
    """Return the value of the workflow's one expression, as n8n's JavaScript makes it."""
    (text,) = re.findall(r"^=\{\{ JSON\.stringify\((.*)\) \}\}$", expression)
    text = re.sub(r"'n8n ' \+ \$json\.(\w+)", lambda found: json.dumps(f"n8n {item[found[1]]}"), text)
    text = re.sub(r"\$json\.(\w+)", lambda found: json.dumps(item[found[1]]), text)
    text = re.sub(r"([{ ,])(\w+):", r'\1"\2":', text).replace("'", '"')
    return json.loads(text)


@with_runtimes
def test_the_ansible_module_is_idempotent(deployment: Deployment, key: str, tools: Path, tmp_path: Path) -> None:
    place = tmp_path / "ansible_collections" / "mailwarden"
    place.mkdir(parents=True)
    (place / "mailwarden").symlink_to(CLIENTS / "ansible")
    sender = f"{uuid4().hex}@scam.example"

    def play(state: str, *options: str, entries: tuple[str, ...] = (sender,), comment: str = "case 1") -> int:
        arguments = {
            "url": deployment.product.url, "api_key": key, "ca_path": str(deployment.product.ca),
            "list_name": "sender-block", "entries": list(entries), "state": state, "comment": comment,
        }  # fmt: skip
        tasks = [{"mailwarden.mailwarden.list_entries": arguments}]
        book = tmp_path / "play.yml"
        book.write_text(json.dumps([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
        words = [str(tools / "ansible-playbook"), "-i", "localhost,", "-c", "local", str(book), *options]
        words += ["-e", f"ansible_python_interpreter={tools / 'python'}"]
        out = run(words, ANSIBLE_COLLECTIONS_PATH=str(tmp_path), ANSIBLE_HOME=str(tmp_path / "home"))
        assert key not in out
        return int(re.findall(r"changed=(\d+)", out)[0])

    def there() -> bool:
        return sender in {each["entry"] for each in deployment.lists().entries("sender-block")}

    assert (play("present", "--check"), there()) == (1, False)
    assert (play("present"), there()) == (1, True)
    assert play("present") == 0
    assert play("present", entries=(sender.upper(),)) == 0
    assert play("present", comment="case 2") == 1
    assert (play("absent", "--check"), there()) == (1, True)
    assert (play("absent"), there()) == (1, False)
    assert play("absent") == 0


@with_runtimes
@pytest.mark.parametrize(
    ("kind", "value", "list_name"),
    [("mail", "eve@cortex.example", "sender-block"), ("ip", "192.0.2.77", "ip-block")],
)
def test_the_responder_of_cortex_blocks_an_observable(
    deployment: Deployment, key: str, tools: Path, tmp_path: Path, kind: str, value: str, list_name: str
) -> None:
    job = {
        "dataType": "thehive:case_artifact",
        "data": {"_type": "case_artifact", "dataType": kind, "data": value, "case": {"caseId": 17}},
        "config": {"url": deployment.product.url, "api_key": key, "ca": str(deployment.product.ca), "days": 30},
    }
    (tmp_path / "input").mkdir()
    (tmp_path / "output").mkdir()
    (tmp_path / "input" / "input.json").write_text(json.dumps(job))
    script = CLIENTS / "cortex" / "MailwardenBlock" / "mailwarden_block.py"
    run([str(tools / "python"), str(script), str(tmp_path)])
    answer = json.loads((tmp_path / "output" / "output.json").read_text())
    assert answer["success"], answer
    assert answer["operations"] == [{"type": "AddTagToArtifact", "tag": f"mailwarden:{list_name}"}]
    (entry,) = (each for each in deployment.lists().entries(list_name) if each["entry"] == value)
    assert entry["comment"] == "TheHive case 17"
    assert entry["expires"]
    flavour = json.loads((script.parent / "MailwardenBlock.json").read_text())
    assert flavour["command"].endswith(script.name)


CALLS = """
import sys
from uuid import UUID
from generated import AuthenticatedClient
from generated.api.default import add_entries, get_lists, list_entries, list_reports, report_contents, submit_email
from generated.models import AddEntries, BorderMtaData, GetLists, ListEntries, ListEntryInput, ListName
from generated.models import MessageAnalysisRequest, ReportKind, SubmitEmailBody
from generated.types import File
from io import BytesIO

url, ca, key, message, tenant = sys.argv[1:]
client = AuthenticatedClient(url, token=key, prefix="apikey", verify_ssl=ca, timeout=60)
raw = open(message, "rb").read()
border = BorderMtaData(envelope_from="a@pass.example", envelope_recipients=["b@company.example"])
email = File(BytesIO(raw), "m.eml", "message/rfc822")
body = SubmitEmailBody(parameters=MessageAnalysisRequest(border_mta_data=border), email=email)
print("scan", submit_email.sync(client=client, body=body).verdict)
print("lists", len(get_lists.sync(client=client, body=GetLists()).list_file_infos))
added = AddEntries(list_name=ListName.SENDER_BLOCK, entries=[ListEntryInput(entry="gen@scam.example")])
print("added", add_entries.sync(client=client, body=added).modified_entries)
found = list_entries.sync_detailed(client=client, body=ListEntries(list_name=ListName.SENDER_BLOCK))
print("entries", b"gen@scam.example" in found.content)
report = report_contents.sync(client=client, body=File(BytesIO(raw)), kind=ReportKind.SPAM, tenant_uid=UUID(tenant))
print("report", report.kind, len(list_reports.sync(client=client, tenant_uid=UUID(tenant)).reports) > 0)
"""


@with_runtimes
def test_a_generated_client_scans_lists_and_reports(
    deployment: Deployment, key: str, tools: Path, tmp_path: Path
) -> None:
    document, message = tmp_path / "openapi.json", tmp_path / "spam.eml"
    document.write_bytes(deployment.client().call("GET", "/openapi.json").body)
    message.write_bytes(spam_message())
    out = tmp_path / "generated"
    words = [str(tools / "openapi-python-client"), "generate", "--path", str(document), "--output-path", str(out)]
    run([*words, "--meta", "none", "--config", str(CLIENTS / "openapi-python-client.yml")])
    models = len(list((out / "models").glob("*.py"))) - 1
    assert models < 90
    script = tmp_path / "calls.py"
    script.write_text(CALLS)
    product, tenant = deployment.product, deployment.tenants["bank"]
    arguments = [product.url, str(product.ca), key, str(message), tenant]
    shown = run([str(tools / "python"), str(script), *arguments], PYTHONPATH=str(tmp_path))
    assert shown.splitlines() == ["scan spam", "lists 16", "added 1", "entries True", "report spam True"]
