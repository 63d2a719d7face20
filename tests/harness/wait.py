"""Waiting without sleeping blindly: poll a condition, give up at a deadline and say what was seen last."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_S = 0.005


def eventually(read: Callable[[], T], accept: Callable[[T], bool], timeout: float = 5.0) -> T:
    """The first value of `read` that `accept` takes; an AssertionError with the last one after `timeout`."""
    deadline = time.monotonic() + timeout
    while True:
        seen = read()
        if accept(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s; last seen: {seen!r}")
        time.sleep(PAUSE_S)


def becomes(read: Callable[[], T], expected: T, timeout: float = 5.0) -> T:
    """Like `eventually`, for one expected value."""
    deadline = time.monotonic() + timeout
    while (seen := read()) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: expected {expected!r}, last seen {seen!r}")
        time.sleep(PAUSE_S)
    return seen
