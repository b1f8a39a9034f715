#!/usr/bin/env python3
"""A Cortex responder: adds an observable of TheHive to a block list of Mailwarden."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from cortexutils.responder import Responder

from mailwarden_client import ApiError, Client, NewEntry

# The list of each type of observable.
LISTS = {
    "mail": "sender-block",
    "domain": "sender-block",
    "fqdn": "url-block",
    "url": "url-block",
    "ip": "ip-block",
    "hash": "file-hash-block",
}


class MailwardenBlock(Responder):
    def run(self):
        """Add the observable to its list, with the case as comment and an expiry."""
        list_name = LISTS.get(self.get_param("data.dataType", ""))
        if list_name is None:
            self.error(f"There is no list for this type. There are lists for {', '.join(LISTS)}.")
        value = self.get_param("data.data", None, "The observable has no value.")
        case = self.get_param("data.case.caseId", "")
        expires = datetime.now(timezone.utc) + timedelta(days=self.get_param("config.days", 90))
        entry = NewEntry(value, f"TheHive case {case}".strip(), expires)
        tenant = self.get_param("config.tenant", None) or None
        try:
            with Client(
                self.get_param("config.url", None, "The configuration has no url."),
                self.get_param("config.api_key", None, "The configuration has no api_key."),
                ca=self.get_param("config.ca", None) or None,
            ) as client:
                client.add_entries(list_name, [entry], tenant)
        except (ApiError, ValueError, OSError) as error:
            self.error(str(error))
        self.report({"message": f"{value} is in {list_name}.", "list": list_name})

    def operations(self, raw):
        """Tag the observable in TheHive."""
        return [self.build_operation("AddTagToArtifact", tag=f"mailwarden:{raw['list']}")]


if __name__ == "__main__":
    MailwardenBlock().run()
