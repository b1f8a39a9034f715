"""Checks the Helm chart: `make check-long ONLY=chart`; prints one line per check.

helm lints and renders every values file of the chart's ci folder; kubernetes-validate checks the manifests strictly for
two versions of Kubernetes; `mailwarden config check` checks the configuration in them. Both tools come from
requirements/chart.txt, in an environment of their own.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from locked_tools import install_tools
from ruamel.yaml import YAML
from summary import Summary

from mailwarden import __version__
from mailwarden.cli.main import main as mailwarden

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "chart" / "mailwarden"
TOOLS = ROOT / "run" / "chart"
VERSIONS = ("1.31.0", "1.37.0")
RELEASE = "mail"
GUARD_PATH = "guard/core/guard.yml"
# Values that the schema or a template must reject, and a word of the reason.
REJECTED = {
    "image: {repository: ''}": "image.repository",
    "database: {url: 'postgresql://mailwarden:secret@host/mailwarden'}": "database.url",
    "engines: {rspamd: {address: 'rspamd:11333'}}": "engines.rspamd.address",
    "guard: {replica: 3}": "replica",
    "guard: {journalVolume: {enabled: 'yes'}}": "journalVolume",
    "guard: {scanSources: {smtp: {listen: {port: 10025}, nextHop: 'postfix:10026'}}}": "quarantine.store",
    "abby: {staticApiTokens: [{token: plain}]}": "staticApiTokens",
}
# A manifest that the strict validation must reject.
MISSPELT = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {ports: [{port: 1}], selectors: {a: b}}\n"


class Security(msgspec.Struct, rename="camel", frozen=True):
    """The security context of a pod or a container; a missing key counts as the unsafe value."""

    run_as_non_root: bool = False
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool = True
    capabilities: dict[str, list[str]] = {}


class Container(msgspec.Struct, rename="camel", frozen=True):
    name: str
    security_context: Security = Security()
    startup_probe: dict[str, object] = {}
    liveness_probe: dict[str, object] = {}
    readiness_probe: dict[str, object] = {}

    @property
    def probed(self) -> bool:
        return bool(self.startup_probe and self.liveness_probe and self.readiness_probe)


class Pod(msgspec.Struct, rename="camel", frozen=True):
    containers: list[Container]
    security_context: Security = Security()


class Template(msgspec.Struct, frozen=True):
    spec: Pod


class Pods(msgspec.Struct, frozen=True):
    template: Template


class Workload(msgspec.Struct, frozen=True):
    """A Deployment, a StatefulSet or a Job, as far as its containers go."""

    kind: str
    spec: Pods


class Journal(msgspec.Struct, frozen=True):
    persistent: bool


class Settings(msgspec.Struct, frozen=True):
    """guard.yml, as far as the journal goes."""

    journal: Journal


class Target(msgspec.Struct, frozen=True):
    kind: str
    name: str


class Scaling(msgspec.Struct, rename="camel", frozen=True):
    scale_target_ref: Target


class Autoscaler(msgspec.Struct, frozen=True):
    spec: Scaling


def run(tool: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [TOOLS / "bin" / tool, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )


def check_values(checks: Summary, values: Path, folder: Path) -> None:
    linted = run("helm", "lint", "--strict", "-f", values, CHART)
    checks.line(f"{values.name}: helm lint", well=linted.returncode == 0, output=linted.stdout)
    rendered = run("helm", "template", RELEASE, CHART, "-f", values)
    checks.line(f"{values.name}: helm template", well=rendered.returncode == 0, output=rendered.stdout)
    manifests = folder / f"{values.stem}.yaml"
    manifests.write_text(rendered.stdout)
    for version in VERSIONS:
        validated = run("kubernetes-validate", "--strict", "--quiet", "-k", version, manifests)
        well = validated.returncode == 0
        checks.line(f"{values.name}: valid for Kubernetes {version}", well=well, output=validated.stdout)
    documents: list[dict[str, object]] = [each for each in YAML(typ="safe").load_all(rendered.stdout) if each]
    checks.line(f"{values.name}: config check", well=check_configuration(documents, folder / values.stem))
    checks.line(f"{values.name}: the journal is where guard's settings say", well=check_journal(documents))
    check_pods(checks, values.name, documents)


def check_configuration(documents: list[dict[str, object]], folder: Path) -> bool:
    """Check guard.yml and abby.yml of the ConfigMap as the pods would read them."""
    data = next(msgspec.convert(each["data"], dict[str, str]) for each in documents if each["kind"] == "ConfigMap")
    for name, path in (("guard.yml", GUARD_PATH), ("abby.yml", "abby/abby/abby.yml")):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(data[name])
    return mailwarden(["config", "check", "--config", str(folder)]) == 0


def check_journal(documents: list[dict[str, object]]) -> bool:
    """Check that guard believes in a lasting journal exactly if a claimed volume holds it, and that scaling fits."""
    guard = next(
        each for each in documents if GUARD_PATH in str(each) and each["kind"] in ("Deployment", "StatefulSet")
    )
    data = next(msgspec.convert(each["data"], dict[str, str]) for each in documents if each["kind"] == "ConfigMap")
    settings = msgspec.convert(YAML(typ="safe").load(data["guard.yml"]), Settings)
    scaled = [
        msgspec.convert(each, Autoscaler).spec.scale_target_ref
        for each in documents
        if each["kind"] == "HorizontalPodAutoscaler"
    ]
    name = msgspec.convert(guard["metadata"], dict[str, object])["name"]
    claimed = "/var/lib/mailwarden/journal" in str(guard) and "volumeClaimTemplates" in str(guard)
    return settings.journal.persistent == claimed == (guard["kind"] == "StatefulSet") and all(
        each.kind == guard["kind"] for each in scaled if each.name == name
    )


def check_pods(checks: Summary, name: str, documents: list[dict[str, object]]) -> None:
    """Check that our containers run without root, capabilities and a writable root, and that the probes fit."""
    for document in documents:
        if document["kind"] not in ("Deployment", "StatefulSet", "Job"):
            continue
        workload = msgspec.convert(document, Workload)
        pod = workload.spec.template.spec
        container = pod.containers[0]
        security = container.security_context
        well = (
            pod.security_context.run_as_non_root
            and security.read_only_root_filesystem
            and not security.allow_privilege_escalation
            and security.capabilities == {"drop": ["ALL"]}
            and (workload.kind == "Job" or container.probed)
        )
        checks.line(f"{name}: {container.name} is unprivileged and probed", well=well)


def check_rejected(checks: Summary, folder: Path) -> None:
    base = CHART / "ci" / "least.yaml"
    for number, (text, word) in enumerate(REJECTED.items()):
        values = folder / f"rejected-{number}.yaml"
        values.write_text(text)
        answer = run("helm", "template", RELEASE, CHART, "-f", base, "-f", values)
        well = answer.returncode != 0 and word in answer.stdout
        checks.line(f"rejected: {text}", well=well, output=answer.stdout)
    misspelt = folder / "misspelt.yaml"
    misspelt.write_text(MISSPELT)
    answer = run("kubernetes-validate", "--strict", "--quiet", "-k", VERSIONS[0], misspelt)
    checks.line("rejected: a manifest with a misspelt key", well=answer.returncode != 0)


def main() -> int:
    checks = Summary("chart")
    install_tools(TOOLS, "chart")
    chart = YAML(typ="safe").load(CHART / "Chart.yaml")
    checks.line(f"chart and product are version {__version__}", well=chart["appVersion"] == __version__)
    with tempfile.TemporaryDirectory() as folder:
        for values in sorted((CHART / "ci").glob("*.yaml")):
            check_values(checks, values, Path(folder))
        check_rejected(checks, Path(folder))
    return checks.end()


if __name__ == "__main__":
    sys.exit(main())
