"""`mailwarden cases`: shows the cases of user reports, and closes them with an outcome."""

import argparse
from uuid import UUID

from mailwarden.cli.command import Command, add_action, by_action, operator, print_json, shown, table
from mailwarden.cli.database import add_query_options, find_tenant
from mailwarden.cli.report_services import ReportServices, with_services
from mailwarden.model.scope import Scope
from mailwarden.user_reports.cases.model import Case, CaseOutcome, CaseReport, CaseState
from mailwarden.user_reports.cases.store import MAX_PAGE

ALL = Scope.deployment()
MAX_TEXT = 60


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    ls = add_action(
        actions, "list", "show cases, first those on which reporters agree", "mailwarden cases list --tenant acme"
    )
    ls.add_argument("--tenant", metavar="TENANT", help="name or UUID of the tenant (default: all)")
    ls.add_argument("--state", choices=[each.value for each in CaseState], help="only cases in this state")
    ls.add_argument("--unverified", action="store_true", help="show instead the reports that are not verified")
    show = add_action(actions, "show", "show a case with its reports", "mailwarden cases show UID")
    close = add_action(
        actions,
        "close",
        "close a case: the filter is trained with the outcome, and the reporters are answered",
        "mailwarden cases close UID --outcome malicious",
    )
    close.add_argument("--outcome", required=True, choices=[each.value for each in CaseOutcome], help="the outcome")
    for action in (show, close):
        action.add_argument("uid", type=UUID, metavar="UID", help="a case, as `mailwarden cases list` shows it")
    add_query_options(ls, show, close)


def _list(options: argparse.Namespace) -> int:
    async def ask(services: ReportServices) -> tuple[list[Case], list[CaseReport]]:
        scope = ALL if options.tenant is None else Scope.of((await find_tenant(services.database, options.tenant)).uid)
        if options.unverified:
            return [], list(await services.cases.unverified(scope))
        state = None if options.state is None else CaseState(options.state)
        return list(await services.cases.cases(scope, state, limit=MAX_PAGE)), []

    cases, reports = with_services(options, ask)
    if options.output == "json":
        print_json([_without_contents(report) for report in reports] if options.unverified else cases)
    elif options.unverified:
        print(_report_table(reports) if reports else "No unverified reports.")
    else:
        rows = [("UID", "CHANGED", "STATE", "REPORTS", "REPORTERS", "AGREED", "SENDER", "SUBJECT")]
        rows += [
            (
                *(str(case.uid), f"{case.changed_at:%Y-%m-%d %H:%M}", case.outcome or case.state),
                *(str(case.reports), str(case.reporters), case.agreed or "-", _text(case.sender), _text(case.subject)),
            )
            for case in cases
        ]
        print(table(rows) if cases else "No cases.")
    return 0


def _show(options: argparse.Namespace) -> int:
    async def ask(services: ReportServices) -> tuple[Case, list[CaseReport]]:
        case = await services.cases.find(ALL, options.uid)
        return case, list(await services.cases.reports(ALL, options.uid))

    case, reports = with_services(options, ask)
    if options.output == "json":
        print_json({"case": case, "reports": [_without_contents(report) for report in reports]})
        return 0
    print(f"case      {case.uid}\nsubject   {_text(case.subject)}\nsender    {_text(case.sender)}")
    print(f"state     {case.outcome or case.state}\nagreed    {case.agreed or '-'}\ncampaign  {case.campaign or '-'}")
    print(f"\n{_report_table(reports)}")
    return 0


def _close(options: argparse.Namespace) -> int:
    async def close(services: ReportServices) -> Case:
        return await services.cases.close(ALL, options.uid, CaseOutcome(options.outcome), operator())

    case = with_services(options, close)
    if options.output == "json":
        print_json(case)
    else:
        print(f"The case is closed as {case.outcome}. guard answers its reporters.")
    return 0


def _report_table(reports: list[CaseReport]) -> str:
    rows = [("REPORTED", "REPORTER", "KIND", "FORMAT", "ANSWER", "GGRID", "SUBJECT")]
    rows += [
        (
            *(
                f"{report.reported_at:%Y-%m-%d %H:%M}",
                _text(report.reporter),
                report.kind,
                report.format,
                report.answer,
            ),
            *(str(report.ggrid or "-"), _text(report.subject)),
        )
        for report in reports
    ]
    return table(rows)


def _without_contents(report: CaseReport) -> dict[str, object]:
    digest = report.digest.hex() if report.digest is not None else None
    return {name: getattr(report, name) for name in CaseReport.__struct_fields__} | {"digest": digest}


def _text(text: str) -> str:
    return shown(text[:MAX_TEXT])


COMMAND = Command(
    example="mailwarden cases list --state open",
    arguments=_arguments,
    run=by_action(list=_list, show=_show, close=_close),
)
