"""The records of the List API (specification, section 2), in the spelling of the specification."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from mailwarden.errors import TooManyEntries
from mailwarden.wire.strict_json import T, convert, read_object, read_plain

MAX_ENTRIES = 500
MAX_COMMENT = 1_024

ListName = Annotated[
    str, Meta(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*\Z", max_length=64, description="Name of the list.")
]
TenantUid = Annotated[UUID | None, Meta(description="Tenant of the lists; absent or null means the global scope.")]
_Moment = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_GIVEN_BACK = Meta(description="Ignored, so that a line of listEntries can be sent back unchanged.")


class ListEntryInput(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """One entry to add or update; an absent field keeps its value."""

    entry: Annotated[str, Meta(description="The entry, in any accepted spelling.")]
    comment: Annotated[
        Annotated[str, Meta(max_length=MAX_COMMENT)] | UnsetType,
        Meta(description='Absent keeps the current comment, "" clears it.'),
    ] = UNSET
    expires: Annotated[
        Annotated[datetime, Meta(tz=True)] | UnsetType | None,
        Meta(description="Expiry time. Absent keeps the current value, null clears it."),
    ] = UNSET
    created: Annotated[str | None, _GIVEN_BACK] = None
    created_by: Annotated[str | None, _GIVEN_BACK] = None
    updated: Annotated[str | None, _GIVEN_BACK] = None
    updated_by: Annotated[str | None, _GIVEN_BACK] = None
    hits: Annotated[int | None, _GIVEN_BACK] = None
    last_hit: Annotated[str | None, _GIVEN_BACK] = None


class AddEntries(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The body of addEntries."""

    list_name: ListName
    entries: Annotated[tuple[ListEntryInput, ...], Meta(description="At most 500 entries.")]
    tenant_uid: TenantUid = None


class DeleteEntries(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The body of deleteEntries."""

    list_name: ListName
    entries: Annotated[tuple[str, ...], Meta(description="At most 500 entries, in any accepted spelling.")]
    tenant_uid: TenantUid = None


class GetLists(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The body of getLists; it may be empty."""

    tenant_uid: TenantUid = None


class ListEntries(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The body of listEntries."""

    list_name: ListName
    tenant_uid: TenantUid = None


class ModifiedEntries(Struct, frozen=True, rename="camel"):
    """The response of addEntries and deleteEntries."""

    modified_entries: Annotated[int, Meta(ge=0, description="Entries added, updated or deleted by this call.")]


class ListInfo(Struct, frozen=True, rename="camel"):
    display_name: Annotated[str, Meta(description="Display name.")]
    category: Annotated[str, Meta(description="Group of lists to which it belongs.")]
    description: Annotated[str, Meta(description="Effect of an entry.")]
    max_size: Annotated[int, Meta(description="Maximum number of entries of the list in this scope.")]


class ListFileInfo(Struct, frozen=True, rename="camel"):
    """One list with its metadata."""

    list_name: Annotated[str, Meta(description="Name of the list.")]
    list_info: ListInfo


class AvailableLists(Struct, frozen=True, rename="camel"):
    """The response of getLists."""

    list_file_infos: Annotated[tuple[ListFileInfo, ...], Meta(description="All lists of the scope.")]


class PublicListsEntry(Struct, frozen=True, rename="camel"):
    """One line of listEntries; times are RFC 3339 in UTC with milliseconds."""

    entry: str
    comment: str
    created: _Moment
    created_by: str
    updated: _Moment
    updated_by: str
    expires: _Moment | None
    hits: int
    last_hit: _Moment | None


def read_request(raw: bytes, kind: type[T]) -> T:
    """Parse and validate the body of one operation."""
    request = read_plain(raw, kind)
    if request is None:
        request = convert(read_object(raw), kind)
    if isinstance(request, AddEntries | DeleteEntries) and len(request.entries) > MAX_ENTRIES:
        raise TooManyEntries(f"One call takes at most {MAX_ENTRIES} entries, not {len(request.entries)}.")
    return request
