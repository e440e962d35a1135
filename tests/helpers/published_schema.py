"""The published shape of a diagnosis document, and a validator for it."""

from __future__ import annotations


class Either(tuple):
    """One of these shapes."""


class Optional(tuple):
    """The one shape of a field that may be missing."""


RANKS = [int]
FRAME = {"file": str, "line": int, "function": str}
SIDE = {
    "ranks": RANKS,
    "group": {"name": str, "members": RANKS},
    "sequence": Either((int, None)),
    "thread": str,
    "op": str,
    "frame": Either((FRAME, None)),
    "stack": [FRAME],
    "note": str,
}
BRANCH = {
    "file": str,
    "line": int,
    "condition": str,
    "kind": str,
    "values": [
        {
            "name": str,
            "value": str,
            "ranks": RANKS,
            "seen": {"now", "at-divergence", "inferred-from-path"},
        }
    ],
    "answers": [{"function": str, "file": str, "line": int, "condition": str, "subject": str, "left": str}],
    "moment": Optional(({"ranks": RANKS, "value": {"True", "False", "ended"}, "before": int, "alone": bool},)),
}
SCHEMA = {
    "schema": {"hangdoc.diagnosis/1"},
    "outcome": {"hang", "slow", "crashed", "healthy", "blind"},
    "verdict": str,
    "cause": Either(({"code": str, "name": str, "title": str}, None)),
    "culprits": RANKS,
    "alternatives": [RANKS],
    "culprit_processes": [
        {
            "rank": Either((int, None)),
            "pid": Either((int, None)),
            "host": str,
            "role": {"rank", "launcher", "dataloader-worker", "child", "absent-node", "foreign-job"},
            "job": str,
        }
    ],
    "victims": RANKS,
    "confidence": {"certain", "likely", "possible"},
    "sure": str,
    "why": str,
    "fix": str,
    "repair": Either(
        (
            {
                "edits": [
                    {
                        "rank": int,
                        "edit": {"delete", "insert", "replace", "move", "revive"},
                        "call": str,
                        "frame": Either((FRAME, None)),
                    }
                ],
                "text": str,
            },
            None,
        )
    ),
    "divergence": Either(({"sides": [SIDE], "branch": Either((BRANCH, None))}, None)),
    "ranks": [
        {
            "rank": int,
            "host": str,
            "pid": Either((int, None)),
            "activity": str,
            "text": str,
            "where": Either((FRAME, None)),
            "waits_for": RANKS,
        }
    ],
    "evidence": [
        {
            "kind": {"journal", "stack", "process", "socket", "port", "store", "log", "locals", "source", "nccl"},
            "ranks": RANKS,
            "text": str,
        }
    ],
    "unavailable": [{"rank": Either((int, None)), "what": str, "why": str, "remedy": str}],
    "command": [str],
    "stalled_for": Either((float, None)),
    "world_size": Either((int, None)),
}


# Only where dumps of several jobs lay in one folder.
SCHEMA |= {"job": Optional((str,)), "others": Optional(([SCHEMA],))}


def faults(value, shape, place="$"):
    """Where ``value`` differs from ``shape``, as a list of texts."""
    if isinstance(shape, Either):
        all_faults = [faults(value, option, place) for option in shape]
        return min(all_faults, key=len)
    if shape is None:
        return [] if value is None else [f"{place}: not null"]
    if isinstance(shape, type):
        right = type(value) is shape or (shape is float and type(value) is int)
        return [] if right else [f"{place}: {value!r} is no {shape.__name__}"]
    if isinstance(shape, set):
        return [] if value in shape else [f"{place}: {value!r} is none of {sorted(shape)}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{place}: not a list"]
        return [fault for i, item in enumerate(value) for fault in faults(item, shape[0], f"{place}[{i}]")]
    if not isinstance(value, dict):
        return [f"{place}: not an object"]
    may_miss = {key for key, each in shape.items() if isinstance(each, Optional)} - value.keys()
    shape = {key: each[0] if isinstance(each, Optional) else each for key, each in shape.items() if key not in may_miss}
    if value.keys() != shape.keys():
        return [f"{place}: keys differ: {sorted(value.keys() ^ shape.keys())}"]
    return [fault for key in shape for fault in faults(value[key], shape[key], f"{place}.{key}")]
