"""`mailwarden support-bundle` of a running deployment tells its state and none of its secrets."""

import json
import tarfile
from pathlib import Path

from tests.acceptance.deployment import Deployment, run_command
from workshop.rig.engines import Engines

SUBJECT = "Kassensturz"


def test_a_bundle_has_facts_and_no_secret(deployment: Deployment, engines: Engines, tmp_path: Path) -> None:
    folder = deployment.product.abby.folder
    log = tmp_path / "guard.log"
    planted = json.dumps({"event": "message_scanned", "subject": SUBJECT, "sender": "ada@north.example", "count": 3})
    log.write_text(deployment.product.guards[0].log.read_text("utf-8") + planted + "\nTraceback of ada@north.example\n")
    file = tmp_path / "bundle.tar.gz"
    began = engines.postgresql.execute("SELECT now()", deployment.database)
    run_command("support-bundle", str(file), "--log", str(log), "--config", str(folder))
    with tarfile.open(file) as bundle:
        members = {each.name.rpartition("/")[2]: bundle.extractfile(each) for each in bundle}
        texts = {name: member.read().decode() for name, member in members.items() if member is not None}
    assert set(texts) >= {"host.json", "doctor.json", "settings-guard.json", "settings-abby.json", "database.json"}
    assert '"pendingMigrations": []' in texts["database.json"]
    assert "mailwarden_build_info" in texts["metrics-guard-1.txt"]
    assert '"count":3' in texts["log-1.jsonl"]
    rows = f"SELECT count(*) FROM history WHERE created >= '{began}'"  # rows of earlier tests may still arrive
    assert engines.postgresql.execute(rows, deployment.database) == "0", "no test message is kept"
    check_doctor(json.loads(texts["doctor.json"]), len(deployment.product.guards))
    secrets = [path.read_text().strip() for path in (folder / "secrets").iterdir()]
    secrets += [*deployment.tokens.values(), *deployment.keys.values(), deployment.database, str(folder)]
    secrets += [SUBJECT, "north.example", "127.0.0.1", "BEGIN", deployment.product.guards[0].url]
    everything = "\n".join(texts.values())
    for secret in secrets:
        assert secret not in everything


def check_doctor(checks: list[dict[str, str]], guards: int) -> None:
    """The checks of `mailwarden doctor` take half a minute, so they run here and for a long run by themselves."""
    assert [check for check in checks if check["state"] == "FAIL"] == []
    names = [check["name"] for check in checks]
    assert {"database", "clamav settings", "rspamd settings", "clock", "self-tests"} <= set(names)
    assert sum(name.startswith("scans ") for name in names) == guards
