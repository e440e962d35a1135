"""What C++ frames say where Python's say nothing (names of torch 2.13, CPython 3.9 to 3.13, glibc)."""

from __future__ import annotations

import re

from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Stack

# The first that matches any frame counts: a store waits by poll, a lock by a semaphore.
_LANDMARKS = (
    (re.compile(r"c10d::Reducer::"), ActivityKind.IN_COLLECTIVE, "backward(): gradient synchronisation"),
    (
        re.compile(r"c10d::\w*Store::(?:\w*[gG]et|\w*[wW]ait)\b"),
        ActivityKind.STORE_WAIT,
        "waiting for a key of the rendezvous store",
    ),
    (re.compile(r"c10d::\w+::SendWork::"), ActivityKind.SEND, "asynchronous send"),
    (re.compile(r"c10d::\w+::RecvWork::"), ActivityKind.RECV, "asynchronous recv"),
    (
        re.compile(r"c10d::(?:\w+::)*(?:\w*Work\b|ProcessGroup\w*)"),
        ActivityKind.IN_COLLECTIVE,
        "asynchronous collective",
    ),
    (re.compile(r"PyThread_acquire_lock"), ActivityKind.LOCK, "waiting for a Python lock"),
    (
        re.compile(r"pthread_mutex_lock|__lll_lock_wait|std::mutex::lock"),
        ActivityKind.LOCK,
        "waiting for a native lock",
    ),
    (
        re.compile(r"std::condition_variable|pthread_cond_(?:timed)?wait"),
        ActivityKind.LOCK,
        "waiting for another native thread",
    ),
)
_PLUMBING = re.compile(r"__?futex|__poll\b|__libc_|cfunction|clock_nanosleep@|\?\?\?|_start\b")


def native_wait(frames: Stack) -> tuple[ActivityKind, str] | None:
    """Kind and words of the wait that native frames show; None where they show none."""
    for pattern, kind, words in _LANDMARKS:
        if any(pattern.search(frame.function) for frame in frames):
            return kind, words
    return None


def native_function(frames: Stack) -> str:
    """The innermost native function worth naming, without its arguments; '' where there is none."""
    for frame in frames:
        if not _PLUMBING.match(frame.function):
            return re.split(r"[(@<]", frame.function, maxsplit=1)[0].strip()
    return ""
