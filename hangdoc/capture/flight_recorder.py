"""c10d's flight recorder: its pickles and dump files, read without trusting them.

Facts of torch 2.6-2.13 (schema "2.4" to "2.10"): a dump is a pickled dict of builtins; gloo never changes
``state`` and tells the end of a call by ``retired`` alone; gloo's ``pg_config`` has one entry
without a name; one dict stands for each distinct frame, so frames are interned by identity.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import pickletools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from hangdoc.model.frames import own_frames
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Unavailable

MOST_BYTES = 64 << 20
_MOST_CALLS = 200_000
_MOST_FRAMES = 4096
_MOST_DIMENSIONS = 64
_MOST_MEMBERS = 1 << 20
_LONGEST_TEXT = 4096
_SCHEMA = re.compile(r"2\.\d+$")
_RANK_AT_END = re.compile(r"(\d+)$")

# The names under which Python callers know the operations. Left: what backends record (torch 2.6-2.13).
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "allgather": "all_gather",
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "all_gather_coalesced": "all_gather",
    "allgather_coalesced": "all_gather",
    "_broadcast_oop": "broadcast",
    "broadcast_coalesced": "broadcast",
    "_reduce_oop": "reduce",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_base": "all_to_all_single",
}
_POINT_TO_POINT = {"send", "recv", "recv_anysource"}


class _RefusedError(ValueError):
    """The bytes are not what a flight recorder writes."""


class _BuiltinsOnly(pickle.Unpickler):
    """Containers, numbers and text need no class; whoever asks for one is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> NoReturn:
        raise _RefusedError(f"it names {module_name[:100]}.{global_name[:100]}, and a dump names nothing")

    def persistent_load(self, _pid: Any, /) -> NoReturn:
        raise _RefusedError("it refers to something outside itself")


def unpickle(data: bytes, *, foreign: bool) -> dict[Any, Any] | Unavailable:
    """The dict in ``data``. ``foreign`` data, which any hand may have written, is searched beforehand for
    memo numbers that would make the unpickler allocate gigabytes."""
    if len(data) > MOST_BYTES:
        return _unavailable(f"it has {len(data)} bytes, more than {MOST_BYTES}")
    try:
        if foreign:
            for opcode, argument, _ in pickletools.genops(data):
                if "PUT" in opcode.name and not 0 <= int(argument or 0) <= len(data):
                    raise _RefusedError("it numbers its parts beyond its size")
        found = _BuiltinsOnly(io.BytesIO(data)).load()
    except Exception as error:  # whatever a broken pickle makes of itself
        return _unavailable(f"{type(error).__name__}: {error}"[:300])
    return found if isinstance(found, dict) else _unavailable(f"it holds {type(found).__name__}, not a dict")


def _unavailable(why: str) -> Unavailable:
    return Unavailable(
        "journal",
        f"the flight recorder's dump cannot be read: {why}",
        "give the file as torch wrote it, whole (TORCH_FR_DUMP_TEMP_FILE names where)",
    )


@dataclass(slots=True)
class StackTable:
    """Every different stack once."""

    stacks: list[Stack]
    _index: dict[Stack, int]

    @classmethod
    def new(cls) -> StackTable:
        """An empty table."""
        return cls([], {})

    def add(self, stack: Stack) -> int:
        """Index of ``stack``, without what started the process; -1 for an empty one."""
        stack = own_frames(stack)
        if not stack:
            return -1
        found = self._index.get(stack)
        if found is None:
            found = self._index[stack] = len(self.stacks)
            self.stacks.append(stack)
        return found


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one dump says. ``counters``: per group name the last enqueued and last completed number; ``forgotten``: how
    many older entries had left the recorder's ring."""

    calls: tuple[Call, ...]
    point_to_points: tuple[PointToPoint, ...]
    groups: tuple[ProcessGroup, ...]
    counters: tuple[tuple[str, int, int], ...]
    forgotten: int = 0


def parse(
    dump: dict[Any, Any], table: StackTable, known_groups: tuple[ProcessGroup, ...] = ()
) -> Recorded | Unavailable:
    """Dump → calls in the order they were issued. Entries that make no sense are left out.

    ``known_groups`` translate the peers of point-to-point calls; without them the dump's own groups do.
    """
    version = dump.get("version")
    if not isinstance(version, str) or not _SCHEMA.match(version):
        return _unavailable(f"its schema is {str(version)[:40]!r}; this hangdoc knows 2.x")
    entries = dump.get("entries", [])
    if not isinstance(entries, list):
        return _unavailable("it has no list of entries")
    reader = _Reader(table)
    for entry in entries[-_MOST_CALLS:]:
        if isinstance(entry, dict):
            with contextlib.suppress(KeyError, TypeError, ValueError):
                reader.read(entry)
    groups = _groups(dump.get("pg_config"))
    named = {group.name for group in groups}
    groups += tuple(group for name, group in reader.groups.items() if name not in named)
    members = {group.name: group.members for group in known_groups or groups}
    return Recorded(
        tuple(reader.calls),
        tuple(_global(call, members.get(call.group, ())) for call in reader.point_to_points),
        groups,
        counters(dump.get("pg_status"), reader.names),
        _forgotten(entries[-_MOST_CALLS:]),
    )


def _forgotten(entries: list[Any]) -> int:
    """The number of the oldest entry that is kept: the recorder counts them from 0 (torch 2.6-2.13)."""
    first = entries[0].get("record_id") if entries and isinstance(entries[0], dict) else 0
    return first if type(first) is int and 0 < first < 1 << 63 else 0


class _Reader:
    def __init__(self, table: StackTable) -> None:
        self.calls: list[Call] = []
        self.point_to_points: list[PointToPoint] = []
        self.names: dict[str, str] = {}
        self.groups: dict[str, ProcessGroup] = {}
        self._table = table
        self._frames: dict[int, Frame] = {}
        self._stacks: dict[tuple[int, ...], int] = {}

    def read(self, entry: dict[Any, Any]) -> None:
        group = entry["process_group"]
        name = _text(group[0] if isinstance(group, (tuple, list)) and group else group)
        number = _text(entry.get("pg_id"))
        # TORCH_DISTRIBUTED_DEBUG=DETAIL hides the names from gloo: do not take all groups for one.
        name = name or f"#{number}"
        self.names[number] = name
        if name not in self.groups and isinstance(group, (tuple, list)) and len(group) == 2 and group[0]:
            self.groups[name] = ProcessGroup(name, (), _text(group[1]))  # gloo: who its members are, no dump says
        op, peers = operation(_text(entry["profiling_name"]))
        stack = self._stack(entry.get("frames"))
        completed = entry.get("retired") is True or entry.get("state") == "completed"
        thread_id = _whole(entry.get("thread_id"))
        created_ns = _whole(entry.get("time_created_ns"))
        op_id = _whole(entry.get("op_id"))
        if entry.get("is_p2p") is True or op in _POINT_TO_POINT:
            self.point_to_points.append(
                PointToPoint(name, op_id, op, peers, 0, stack, created_ns, completed, thread_id)
            )
            return
        self.calls.append(
            Call(
                group=name,
                sequence=_whole(entry["collective_seq_id"]),
                op_id=op_id,
                op=op,
                stack=stack,
                input_sizes=_sizes(entry.get("input_sizes")),
                output_sizes=_sizes(entry.get("output_sizes")),
                input_dtypes=_texts(entry.get("input_dtypes")),
                output_dtypes=_texts(entry.get("output_dtypes")),
                created_ns=created_ns,
                completed=completed,
                thread_id=thread_id,
                thread_name=_text(entry.get("thread_name") or ""),
                timeout_ms=_whole(entry.get("timeout_ms")),
            )
        )

    def _stack(self, frames: Any) -> int:
        if not isinstance(frames, list):
            return -1
        key = tuple(id(frame) for frame in frames[:_MOST_FRAMES])
        if key not in self._stacks:
            self._stacks[key] = self._table.add(tuple(self._frame(frame) for frame in frames[:_MOST_FRAMES]))
        return self._stacks[key]

    def _frame(self, frame: Any) -> Frame:
        known = self._frames.get(id(frame))
        if known is None:
            known = Frame(_text(frame["filename"]), _whole(frame["line"]), _text(frame["name"]))
            self._frames[id(frame)] = known
        return known


def _global(call: PointToPoint, members: tuple[int, ...]) -> PointToPoint:
    known = 0 <= call.peer < len(members)
    return replace(call, peer=members[call.peer]) if known else call


def operation(profiling_name: str) -> tuple[str, int]:
    """'gloo:all_reduce' → ('all_reduce', -1); 'nccl:send 0->1' → ('send', 1); 'nccl:recv 0<-1' → ('recv', 1).

    The peer is the one of the recorder: a rank in the group.
    """
    name = profiling_name.rsplit(":", 1)[-1].strip()
    peer = -1
    if match := re.match(r"(send|recv) \d+(?:->|<-)(\d+)$", name):
        return match[1], int(match[2])
    name = name.rstrip("_") or name
    return _OPERATIONS.get(name, name), peer


def counters(status: Any, names: dict[str, str]) -> tuple[tuple[str, int, int], ...]:
    """``pg_status`` → (group, enqueued, completed). Its keys are numbers, which ``names`` translates."""
    if not isinstance(status, dict):
        return ()
    found = []
    for number, values in list(status.items())[:_MOST_MEMBERS]:
        if isinstance(values, dict):
            with contextlib.suppress(ValueError):  # no number at all
                enqueued = _whole(values.get("last_enqueued_collective"))
                completed = _whole(values.get("last_completed_collective"))
                found.append((names.get(_text(number), _text(number)), enqueued, completed))
    return tuple(found)


def _groups(config: Any) -> tuple[ProcessGroup, ...]:
    """Groups of ``pg_config``; not gloo's, which has one entry without a name."""
    if not isinstance(config, dict):
        return ()
    found = []
    for name, values in list(config.items())[:_MOST_MEMBERS]:
        if isinstance(values, dict) and name:
            found.append(ProcessGroup(_text(name), _members(values.get("ranks")), _text(values.get("desc") or "")))
    return tuple(found)


def _members(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks[: 16 * _MOST_MEMBERS])
        except ValueError:
            return ()
    if not isinstance(ranks, (list, tuple)):
        return ()
    return tuple(rank for rank in ranks[:_MOST_MEMBERS] if type(rank) is int and rank >= 0)


def _text(value: Any) -> str:
    return (value if isinstance(value, str) else str(value) if isinstance(value, int) else "")[:_LONGEST_TEXT]


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(_text(value) for value in values[:_MOST_DIMENSIONS]) if isinstance(values, list) else ()


def _whole(value: Any) -> int:
    if isinstance(value, str) and len(value) <= 24:
        value = int(value)
    return value if type(value) is int and abs(value) < 1 << 64 else 0


def _sizes(values: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(values, list):
        return ()
    return tuple(
        tuple(_whole(size) for size in shape[:_MOST_DIMENSIONS])
        for shape in values[:_MOST_DIMENSIONS]
        if isinstance(shape, list)
    )


def read_dump_folder(folder: Path) -> tuple[dict[int, Journal], list[Unavailable]]:
    """Journals of the dump files ``<prefix><rank>`` in ``folder``, by rank; one Unavailable per file that
    cannot be read. Other files are passed over in silence if their names end in no number."""
    journals: dict[int, Journal] = {}
    failed: list[Unavailable] = []
    try:
        paths = sorted(path for path in folder.iterdir() if _RANK_AT_END.search(path.name) and path.is_file())
    except OSError as error:
        return {}, [Unavailable("journal", f"{folder}: {error.strerror}", "name the folder that holds the dump files")]
    for path in paths:
        match = _RANK_AT_END.search(path.name)
        rank = int(match[1]) if match and len(match[1]) < 10 else -1
        journal = _read_dump(path)
        if isinstance(journal, Unavailable):
            failed.append(Unavailable(journal.what, f"{path.name}: {journal.why}", journal.remedy, rank))
        elif rank in journals:
            failed.append(
                Unavailable(
                    "journal",
                    f"{path.name}: there is another dump of rank {rank} in this folder",
                    "keep the dumps of one run in a folder of their own",
                    rank,
                )
            )
        elif rank >= 0:
            journals[rank] = journal
    if not journals and not failed:
        failed.append(
            Unavailable(
                "journal",
                f"{folder}: no file here is named like a dump (<prefix><rank>)",
                "set TORCH_FR_DUMP_TEMP_FILE for the job and name the folder it writes to",
            )
        )
    return journals, failed


def _read_dump(path: Path) -> Journal | Unavailable:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        return _unavailable(error.strerror or type(error).__name__)
    dump = unpickle(data, foreign=True)
    if isinstance(dump, Unavailable):
        return dump
    table = StackTable.new()
    recorded = parse(dump, table)
    if isinstance(recorded, Unavailable):
        return recorded
    return Journal(
        source="dump",
        groups=recorded.groups,
        calls=recorded.calls,
        point_to_points=recorded.point_to_points,
        forgotten=recorded.forgotten,
        stacks=tuple(table.stacks),
        counters=recorded.counters,
    )
