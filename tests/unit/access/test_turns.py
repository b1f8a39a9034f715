"""Bounds for calls in progress."""

import pytest

from mailwarden.access.callers import Caller
from mailwarden.access.turns import CallCounter, Turns
from mailwarden.errors import Overloaded, RateLimited
from mailwarden.model.scope import Scope


def caller(name: str) -> Caller:
    return Caller(name, frozenset(), Scope.of(), name)


def test_a_call_beyond_the_maximum_is_rejected_until_another_ends():
    counter = CallCounter(1, "Too many uploads at once; try again.")
    with counter.call():
        assert counter.in_progress == 1
        with pytest.raises(Overloaded, match="Too many uploads"), counter.call():
            raise AssertionError
    with pytest.raises(ZeroDivisionError), counter.call():
        raise ZeroDivisionError
    assert counter.in_progress == 0
    counter.maximum = 0  # lowered by a reload
    with pytest.raises(Overloaded), counter.call():
        raise AssertionError


def test_a_credential_cannot_use_all_places():
    turns = Turns("searches", each=1, total=2, running=1)
    with turns.call(caller("a")):
        with pytest.raises(RateLimited, match="1 searches running"), turns.call(caller("a")):
            raise AssertionError
        with turns.call(caller("b")), pytest.raises(Overloaded, match="Too many searches"), turns.call(caller("c")):
            raise AssertionError
    with turns.call(caller("a")), turns.call(caller("c")):
        pass
