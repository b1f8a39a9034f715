"""The Python client of the List API: `ListsClient` for synchronous code, `AsyncListsClient` for asyncio."""

from mailwarden.client.asynchronous import AsyncEntryStream, AsyncListsClient, NewEntry, Retries
from mailwarden.client.failures import (
    ApiError,
    CallRefused,
    KeyRefused,
    ListFull,
    NotFound,
    ScopeRefused,
    StreamCut,
    Unavailable,
    Unreachable,
)
from mailwarden.client.synchronous import EntryStream, ListsClient
from mailwarden.wire.lists import ListFileInfo, ListInfo, PublicListsEntry

__all__ = [
    "ApiError",
    "AsyncEntryStream",
    "AsyncListsClient",
    "CallRefused",
    "EntryStream",
    "KeyRefused",
    "ListFileInfo",
    "ListFull",
    "ListInfo",
    "ListsClient",
    "NewEntry",
    "NotFound",
    "PublicListsEntry",
    "Retries",
    "ScopeRefused",
    "StreamCut",
    "Unavailable",
    "Unreachable",
]
