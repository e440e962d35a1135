"""Dumps of jobs on devices, written by hand: a word for each call.

    folder(tmp_path, {0: "all_reduce all_reduce+ barrier*", 1: "all_reduce all_reduce*"})

'*' behind a word is a call that is scheduled, '+' one that has started, nothing one that has completed. 'tp:all_reduce'
is a call of group 'tp', 'send>1' a send to rank 1, 'recv<0' a receive, '[send>1,recv<1]' a batch of both.
'all_reduce/8' has 8 elements, and 'all_reduce@30' was called from line 30; 'uploader!barrier' by another thread.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

BEGAN = 1_760_000_000
"""Unix time of the first call; a second later than this the next one, and so on."""
_WORD = re.compile(
    r"(?:(?P<thread>\w+)!)?(?:(?P<group>\w+):)?(?P<op>\w+)(?:[<>](?P<peer>\d+))?(?:/(?P<size>\d+))?"
    r"(?:@(?P<line>\d+))?(?P<mark>[*+]?)"
)
_STATES = {"": "completed", "+": "started", "*": "scheduled"}


class _Rank:
    """One rank's dump as it grows."""

    mesh = False
    ahead = 0.0
    waiting = False
    """Are messages passed by dist.send and dist.recv, which wait for them?"""

    def __init__(self, rank: int, groups: dict[str, list[int]], *, frames: bool, timeout: float, old: bool) -> None:
        self.rank, self.groups, self.frames, self.timeout, self.old = rank, groups, frames, timeout, old
        self.entries: list[dict[str, Any]] = []
        self._counters: dict[str, list[int]] = {}

    def add(self, word: str) -> None:
        """A call, or a batch."""
        if not word.startswith("["):
            match = _WORD.fullmatch(word)
            assert match, word
            group = match["group"] or "default"
            self._count(group, message=bool(match["peer"]))
            self._entry(match, group, _STATES[match["mark"]])
            return
        inner, mark = word[1:].split("]")
        parts = [_WORD.fullmatch(part) for part in inner.split(",")]
        assert all(parts), word
        group = (parts[0]["group"] if parts[0] else None) or "default"
        messages = any(part and part["peer"] for part in parts)
        self._count(group, message=messages and not self.old)
        for part in parts:
            assert part
            self._entry(part, group, "scheduled")
        closing = _WORD.fullmatch("coalesced")
        assert closing
        self._entry(closing, group, _STATES[mark], is_p2p=messages and not self.old)

    def _count(self, group: str, *, message: bool) -> None:
        self._counters.setdefault(group, [0, 0])[message] += 1

    def _entry(self, word: re.Match[str], group: str, state: str, *, is_p2p: bool | None = None) -> None:
        op, members, at = word["op"], self.groups[group], len(self.entries)
        if word["peer"]:
            me, peer = members.index(self.rank), members.index(int(word["peer"]))
            op = f"{op} {me}{'->' if op == 'send' else '<-'}{peer}"
        line = int(word["line"] or 10 + 10 * sorted(set(_LINES)).index(word["op"]) if word["op"] in _LINES else 5)
        created = BEGAN * 10**9 + at * 10**8 + self.rank * 10**6 + int(self.ahead * 1e9)
        number = list(self.groups).index(group)
        torch = {"name": word["op"], "filename": "/lib/torch/distributed/distributed_c10d.py", "line": 2000}
        above = [torch] if self.waiting and word["peer"] else []
        self.entries.append(
            {
                "frames": [*above, {"name": "train", "filename": "/job/train.py", "line": line}] if self.frames else [],
                "record_id": at, "pg_id": number, "process_group": (str(number), _described(group, mesh=self.mesh)),
                "thread_id": "7" if word["thread"] else "1", "thread_name": word["thread"] or "python",
                "collective_seq_id": self._counters[group][0], "p2p_seq_id": self._counters[group][1],
                "op_id": at + 1, "profiling_name": f"nccl:{op}", "time_created_ns": created,
                "input_sizes": [[int(word["size"] or 4)]], "input_dtypes": ["Float"],
                "output_sizes": [[int(word["size"] or 4)]], "output_dtypes": ["Float"], "state": state,
                "time_discovered_started_ns": created + 10**6 if state == "started" else None,
                "time_discovered_completed_ns": created + 10**7 if state == "completed" else None,
                "retired": state == "completed", "timeout_ms": int(self.timeout * 1000),
                "is_p2p": bool(word["peer"]) if is_p2p is None else is_p2p,
            }
        )  # fmt: skip


_LINES = ("all_gather", "all_reduce", "barrier", "broadcast", "recv", "send")


def _described(group: str, *, mesh: bool = False) -> str:
    return "default_pg" if group == "default" else group.rstrip("0123456789") if mesh else group


def folder(
    where: Path,
    ranks: dict[int, str],
    *,
    groups: dict[str, list[int]] | None = None,
    size: int | None = None,
    after: float | dict[int, float] = 120.0,
    timeout: float = 600.0,
    frames: bool = True,
    old: bool = False,
    only_active: bool = False,
    waiting: bool = False,
    mesh: bool = False,
    ahead: dict[int, float] | None = None,
) -> Path:
    """A dump for each rank. ``after``: seconds from the first call to the dump; ``size``: of the default group;
    ``old``: a batch takes a number of the collectives, as until torch 2.5; ``waiting``: messages are passed by calls
    that wait for them; ``mesh``: groups 'dp0' and 'dp1' are both described as 'dp'; ``ahead``: by how many seconds the
    clock of a rank's host is."""
    members = {"default": list(range(size or len(ranks))), **(groups or {})}
    for rank, words in ranks.items():
        dump = _Rank(rank, members, frames=frames, timeout=timeout, old=old)
        dump.waiting, dump.mesh, dump.ahead = waiting, mesh, (ahead or {}).get(rank, 0.0)
        for word in words.split():
            dump.add(word)
        entries = [e for e in dump.entries if e["state"] != "completed"] if only_active else dump.entries
        mine = {str(at): (name, who) for at, (name, who) in enumerate(members.items()) if rank in who}
        content = {
            "version": "2.10",
            "pg_config": {
                at: {"name": at, "desc": _described(name, mesh=mesh), "ranks": json.dumps(who)}
                for at, (name, who) in mine.items()
            },
            "pg_status": {},
            "entries": entries,
        }
        path = where / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(content, protocol=2))
        written = BEGAN + (after if isinstance(after, float) else after[rank])
        os.utime(path, (written, written))
    return where
