#!/usr/bin/python
"""An Ansible module: entries of a list of Mailwarden are present or absent."""

from __future__ import annotations

import traceback

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

try:
    from mailwarden_client import KEEP, ApiError, Client, NewEntry

    MISSING = None
except ImportError:
    MISSING = traceback.format_exc()

DOCUMENTATION = """
module: list_entries
short_description: Adds and deletes entries of lists of Mailwarden
description: Entries of one list are present or absent. Runs where mailwarden-client is installed.
requirements: [mailwarden-client]
options:
  url: {description: Address of abby., type: str, required: true}
  api_key: {description: API key with the scopes lists:read and lists:write., type: str, required: true}
  ca_path: {description: Certificate authority of abby., type: path}
  list_name: {description: Name of the list., type: str, required: true}
  entries: {description: The entries., type: list, elements: str, required: true}
  tenant: {description: Uid of the tenant; absent means the global list., type: str}
  state: {description: Whether the entries are there., type: str, choices: [present, absent], default: present}
  comment: {description: Comment of the entries; absent keeps the present one., type: str}
author: [Mailwarden]
"""
EXAMPLES = """
- mailwarden.mailwarden.list_entries:
    url: https://mail.example.net:9081
    api_key: "{{ mailwarden_api_key }}"
    list_name: sender-block
    entries: [billing@scam.example]
"""
RETURN = """
changed_entries: {description: Entries that were added, updated or deleted., returned: success, type: list}
"""

ARGUMENTS = {
    "url": {"type": "str", "required": True},
    "api_key": {"type": "str", "required": True, "no_log": True},
    "ca_path": {"type": "path"},
    "list_name": {"type": "str", "required": True},
    "entries": {"type": "list", "elements": "str", "required": True},
    "tenant": {"type": "str"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "comment": {"type": "str"},
}


def stored(client, options):
    """Return the comments of the list's entries, by entry."""
    return {each.entry: each.comment for each in client.entries(options["list_name"], options["tenant"])}


def outdated(options, before):
    """Return the given entries that are not in the wanted state."""
    wanted = options["comment"]

    def is_done(entry):
        known = next((each for each in (entry.strip(), entry.strip().lower()) if each in before), None)
        if options["state"] == "absent":
            return known is None
        return known is not None and wanted in (None, before[known])

    return [entry for entry in options["entries"] if not is_done(entry)]


def apply(client, options, check_mode):
    """Bring the entries into the wanted state, and return those that changed."""
    before = stored(client, options)
    # The server knows every spelling of an entry, so that all are deleted that it may have.
    pending = outdated(options, before) if options["state"] == "present" or check_mode else options["entries"]
    if check_mode or not pending:
        return pending
    if options["state"] == "present":
        comment = KEEP if options["comment"] is None else options["comment"]
        given = [NewEntry(entry, comment) for entry in pending]
        client.add_entries(options["list_name"], given, options["tenant"])
    else:
        client.delete_entries(options["list_name"], pending, options["tenant"])
    after = stored(client, options)
    return sorted(entry for entry in before.keys() | after.keys() if before.get(entry) != after.get(entry))


def main():
    module = AnsibleModule(argument_spec=ARGUMENTS, supports_check_mode=True)
    if MISSING is not None:
        module.fail_json(msg=missing_required_lib("mailwarden-client"), exception=MISSING)
    options = module.params
    try:
        with Client(options["url"], options["api_key"], ca=options["ca_path"]) as client:
            changed = apply(client, options, module.check_mode)
    except (ApiError, ValueError, OSError) as error:
        module.fail_json(msg=str(error), code=getattr(error, "code", ""), details=getattr(error, "details", ()))
    module.exit_json(changed=bool(changed), changed_entries=changed)


if __name__ == "__main__":
    main()
