"""Who may still set the store key that a rank waits for."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.queries import store_sets
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function, holds, last_name, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind, WaitReason
from hangdoc.model.process import Frame

_HELD = COMMUNICATING | GONE | {ActivityKind.STOPPED, ActivityKind.NOT_VISIBLE}


def with_store_waits(activities: Mapping[int, Activity], sources: Sources) -> dict[int, Activity]:
    """``activities``; a native wait without a name is one for a store key where other ranks wait for one at that line,
    and so is a sleep at a line that asks a store, where the program makes a FileStore, which sleeps between two looks.

    A HashStore waits in another way than a TCPStore. Example: ranks 0 and 1 are in `self.store.wait(keys)` at line 44,
    and rank 2 is blocked in native code at that line → rank 2 as well.
    """
    found = dict(activities)
    if any(sources.user_calls(*names("store_in_file"))):
        asleep = {rank: _asked_store(activity, sources) for rank, activity in activities.items()}
        found |= {
            rank: replace(activities[rank], kind=ActivityKind.STORE_WAIT, text=f"store.{asked}()")
            for rank, asked in asleep.items()
            if asked
        }
    known = {(a.where.file, a.where.line): a for a in found.values() if a.where and waits_for_a_key(a)}
    for rank, activity in activities.items():
        like = known.get((activity.where.file, activity.where.line)) if activity.where is not None else None
        if like is not None and activity.reason == WaitReason.UNKNOWN:
            found[rank] = replace(activity, kind=like.kind, text=like.text, reason=None)
    return found


def _asked_store(activity: Activity, sources: Sources) -> str:
    """'get' of a rank that sleeps in native code at the line `value = self.store.get(key)`; '' of any other."""
    where = activity.where
    tree = sources.function(where.file, where.line) if where is not None else None
    if where is None or tree is None or activity.kind is not ActivityKind.SLEEPING:
        return ""
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, where.line)]
    asked = [last_name(call.func) for call in calls if isinstance(call.func, ast.Attribute)]
    sleeps = any(last_name(call.func) in names("sleeps") for call in calls)
    return "" if sleeps else next((name for name in asked if name in names("waits_for_key")), "")


def free_ranks(activities: Mapping[int, Activity]) -> tuple[int, ...]:
    """The ranks that wait for no other, so that they may yet set a key."""
    return tuple(sorted(rank for rank, activity in activities.items() if activity.kind not in _HELD))


def setters(activities: Mapping[int, Activity], sources: Sources) -> dict[int, tuple[int, ...]]:
    """Rank that waits for a key → the ranks that wait for no other and have a line ahead of them that sets one.

    Example: rank 1 is in `store.wait(["done"])`, rank 0 in `tool.run()`, one line above `store.set("done", "1")` → {1:
    (0,)}.
    """
    waiting = [rank for rank, activity in activities.items() if waits_for_a_key(activity)]
    coming = [r for r in free_ranks(activities) if waiting and sets_ahead(activities[r], sources)]
    return dict.fromkeys(waiting, tuple(coming)) if coming else {}


def sets_ahead(activity: Activity, sources: Sources) -> bool:
    """True if one of the rank's functions sets a key further on, under no further condition."""
    return any(_sets_ahead(frame, sources) for frame in user_stack(activity.stack))


def _sets_ahead(frame: Frame, sources: Sources) -> bool:
    """True if the frame's function sets a key after the frame's line, under no further condition."""
    tree = sources.function(frame.file, frame.line)
    if tree is None:
        return False
    here = enclosing_function(tree, frame.line)
    ahead = (line for line in store_sets(tree) if line >= frame.line and enclosing_function(tree, line) is here)
    met = {guard.place for guard in guards(tree, frame.line)}
    return any(
        all(guard.kind not in CONDITIONS or guard.place in met for guard in guards(tree, line)) for line in ahead
    )


def is_past_setting(activity: Activity, sources: Sources) -> bool:
    """True if the rank waits for others, with no line ahead of it in its functions that sets a key."""
    return activity.kind in COMMUNICATING and not sets_ahead(activity, sources)
