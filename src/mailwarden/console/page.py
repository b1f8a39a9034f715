"""One row of the console's route table: a page, the right it asks for, and what answers."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from aiohttp import web

from mailwarden.console.rights import Right
from mailwarden.console.visit import Guest, Visit

PREFIX = "/console"

VisitHandler = Callable[[Visit], Awaitable[web.StreamResponse]]
GuestHandler = Callable[[Guest], Awaitable[web.StreamResponse]]


class Takes(Enum):
    """What the body of a request may be."""

    NOTHING = auto()
    FORM = auto()
    UPLOAD = auto()  # multipart/form-data, with files; its first part is the CSRF token


@dataclass(frozen=True, slots=True)
class Page:
    """A page for signed-in people; the path is the part after /console."""

    method: str
    path: str
    right: Right
    handler: VisitHandler = field(repr=False)
    takes: Takes = Takes.FORM
    quiet: bool = False  # asked every few seconds by an open page: no line in the log


@dataclass(frozen=True, slots=True)
class OpenPage:
    """A page for everybody: to sign in, and what is needed for that."""

    method: str
    path: str
    handler: GuestHandler = field(repr=False)
