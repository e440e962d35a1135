"""Dumps in torch's own dialects: schemas 2.0 to 2.10, pickle and JSON, and the names that people's folders have."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path

from dump_folders.simulator import Group, Machine, Seen, Status

EPOCH = 1_760_000_000
"""Unix time at which every simulated job begins."""
_WEEK = 7 * 86_400.0
SCHEMAS = ("2.10", "2.10", "2.10", "2.9", "2.9", "2.7", "2.5", "2.4", "2.4", "2.3", "2.2", "2.1", "2.0")
NAMES = {
    "plain": "nccl_trace_rank_{rank}",
    "comm_lib": "comm_lib_trace_rank_{rank}",
    "container": "nccl_trace_rank_container-node{host:02d}_{rank}",
    "suffix": "trace_{rank}{kind}",
    "both": "nccl_trace_rank_{rank}{kind}",
    "titan": "comm_traces/rank_{rank}",
    "hosts": "node{host}/nccl_trace_rank_{rank}",
    "local": "node{host}/trace_{local}{kind}",
    "ray": "worker_{host}/flight_recorder/rank_{rank}{kind}",
}


@dataclass
class Dumping:
    """How, when and where the dumps were written."""

    moments: dict[int, float]
    """Seconds into the job, for each rank that leaves a dump."""
    watchdog: bool = False
    """A time-out made the ranks dump; otherwise somebody asked for it."""
    timing: bool = False
    """TORCH_NCCL_ENABLE_TIMING: only then is a start recorded."""
    timeout: float = 600.0
    retired_at_timeout: bool = False
    """What timed out is retired before the dump (TORCH_NCCL_ASYNC_ERROR_HANDLING=0)."""
    schema: str = "2.10"
    odd_schema: tuple[int, str] | None = None
    """One rank's schema, where hosts have different versions of torch."""
    ring: int = 2000
    only_active: bool = False
    frames: bool = True
    as_json: bool = False
    zipped: bool = False
    names: str = "plain"
    per_host: int = 8
    clock: dict[int, float] = field(default_factory=dict)
    """How far the clock of a rank's host is off, in seconds."""
    copied: bool = False
    """The files' times are those of a copy, days later."""
    spoiled: dict[int, str] = field(default_factory=dict)
    """'truncated' or 'empty': what became of a rank's dump."""
    foreign: bool = False
    """Other files lie beside the dumps."""
    older_run: Machine | None = None
    """A healthy run, a week before, whose dumps lie in a folder of their own."""

    def schema_of(self, rank: int) -> str:
        return self.odd_schema[1] if self.odd_schema and self.odd_schema[0] == rank else self.schema


def newer(schema: str, than: str) -> bool:
    """Is ``schema`` at least ``than``?"""
    return tuple(map(int, schema.split("."))) >= tuple(map(int, than.split(".")))


def recorded_name(op: str, schema: str) -> str:
    """A barrier went by the name of what NCCL makes of it until torch 2.5."""
    return "all_reduce" if op == "all_reduce_barrier" and not newer(schema, "2.4") else op


def visible(machine: Machine, dumping: Dumping, rank: int) -> list[Seen]:
    """The entries that are in the dump of ``rank``."""
    seen, _ = machine.dump(rank, dumping.moments[rank], timing=dumping.timing)
    kept = seen[-dumping.ring :]
    return [each for each in kept if each.completed is None] if dumping.only_active else kept


def timed_out(seen: Seen, moment: float, timeout: float) -> bool:
    """Had the rank's own watchdog given up on it?"""
    return seen.entry.kernel is not None and seen.completed is None and seen.entry.created + timeout <= moment


class _Dialect:
    """One rank's dump."""

    def __init__(self, machine: Machine, dumping: Dumping, rank: int) -> None:
        self.machine, self.dumping, self.rank = machine, dumping, rank
        self.schema = dumping.schema_of(rank)
        self.offset = EPOCH + dumping.clock.get(rank, 0.0)
        self._frames: dict[tuple[str, int, str], dict[str, object]] = {}

    def document(self) -> dict[str, object]:
        moment = self.dumping.moments[self.rank]
        _, status = self.machine.dump(self.rank, moment, timing=self.dumping.timing)
        groups = self.machine.used_groups(self.rank, moment)
        found: dict[str, object] = {"version": self.schema, "pg_config": {g.name: self._config(g) for g in groups}}
        if newer(self.schema, "2.10"):
            found["comm_lib_version"] = "2.27.5"
        elif newer(self.schema, "2.5"):
            found["nccl_version"] = "2.25.1"
        if newer(self.schema, "2.3"):
            found["pg_status"] = {str(number): self._status(each) for number, each in status.items()}
        entries = [self._entry(seen, moment) for seen in visible(self.machine, self.dumping, self.rank)]
        if entries or not self.dumping.as_json:
            found["entries"] = entries
        return found

    def _config(self, group: Group) -> dict[str, str]:
        return {"name": group.name, "desc": group.desc, "ranks": str(list(group.members))}

    def _status(self, status: Status) -> dict[str, object]:
        values = {"enqueued": status.enqueued, "started": status.started, "completed": status.completed}
        return {
            f"last_{name}_collective": str(value) if self.dumping.as_json else value for name, value in values.items()
        }

    def _time(self, seconds: float | None) -> int | None:
        if seconds is None:
            return 0 if self.dumping.as_json else None
        return int((self.offset + seconds) * 1e9)

    def _entry(self, seen: Seen, moment: float) -> dict[str, object]:
        entry, schema, call = seen.entry, self.schema, seen.entry.call
        name = recorded_name(entry.name, schema)
        group: object = (entry.group.name, entry.group.desc)
        found: dict[str, object] = {}
        if self.dumping.frames and not self.dumping.as_json:
            found["frames"] = [self._frame(*frame) for frame in call.frames]
        found |= {
            "record_id": entry.record_id,
            "pg_id": entry.pg_id,
            "process_group": list(group) if self.dumping.as_json else group,  # type: ignore[call-overload]
        }
        if newer(schema, "2.9"):
            found["thread_name"] = call.thread
            found["thread_id"] = str(139_000_000_000_000 + self.rank * 10_000 + 64 * len(call.thread))
        found |= {
            "collective_seq_id": entry.collective_seq,
            "p2p_seq_id": entry.p2p_seq,
            "op_id": entry.op_id,
            "profiling_name": f"nccl:{name}",
            "time_created_ns": self._time(entry.created),
        }
        if seen.duration_ms is not None:
            found["duration_ms"] = seen.duration_ms
        tensors = () if call.parts else (call.inputs, call.outputs)
        inputs, outputs = tensors or ((), ())
        found["input_sizes"] = [list(shape) for shape in inputs]
        if newer(schema, "2.2"):
            found["input_dtypes"] = [call.dtype] * len(inputs)
        found["output_sizes"] = [list(shape) for shape in outputs]
        if newer(schema, "2.2"):
            found["output_dtypes"] = [call.dtype] * len(outputs)
        retired = seen.retired or (self.dumping.retired_at_timeout and timed_out(seen, moment, self.dumping.timeout))
        found |= {
            "state": seen.state,
            "time_discovered_started_ns": self._time(seen.started),
            "time_discovered_completed_ns": self._time(seen.completed),
            "retired": retired,
        }
        if newer(schema, "2.1"):
            found["timeout_ms"] = int(self.dumping.timeout * 1000)
            found["is_p2p"] = entry.is_p2p
        return found

    def _frame(self, file: str, line: int, name: str) -> dict[str, object]:
        """One dict for each different frame, as torch has them: pickle then keeps one of each."""
        frame = (file, line, name)
        if frame not in self._frames:
            self._frames[frame] = {"name": name, "filename": file, "line": line}
        return self._frames[frame]


def write(folder: Path, machine: Machine, dumping: Dumping, rng: random.Random) -> list[Path]:
    """Write the folder: a file for each rank with a moment, and what lies beside them."""
    root = folder / "run_2" if dumping.older_run is not None else folder
    written = []
    # Copying takes a while too: the files' times then say nothing of the ranks.
    copy = EPOCH + machine.last_move + rng.uniform(1, 4) * 86_400
    for rank, moment in dumping.moments.items():
        written.append(_file(root, machine, dumping, rank))
        stamp = copy + rng.uniform(0, 2) if dumping.copied else EPOCH + moment + dumping.clock.get(rank, 0.0) + 0.05
        os.utime(written[-1], (stamp, stamp))
    if dumping.older_run is not None:
        _write_older(folder / "run_1", dumping.older_run, dumping)
    if dumping.foreign:
        _write_foreign(root, rng)
    return written


def _file(root: Path, machine: Machine, dumping: Dumping, rank: int) -> Path:
    kind = ".json" if dumping.as_json else ".pkl"
    path = root / NAMES[dumping.names].format(
        rank=rank, host=rank // dumping.per_host, local=rank % dumping.per_host, kind=kind
    )
    if dumping.zipped:
        path = path.with_name(path.name + ".gz")
    path.parent.mkdir(parents=True, exist_ok=True)
    document = _Dialect(machine, dumping, rank).document()
    data = json.dumps(document).encode() if dumping.as_json else pickle.dumps(document, protocol=2)
    if dumping.zipped:
        data = gzip.compress(data, 1, mtime=0)
    spoiled = dumping.spoiled.get(rank)
    path.write_bytes(b"" if spoiled == "empty" else data[: len(data) * 2 // 3] if spoiled else data)
    return path


def _write_older(root: Path, machine: Machine, dumping: Dumping) -> None:
    """An earlier run of the same job: all went well."""
    for rank in machine.cpus:
        before = Dumping({rank: machine.last_move + 1}, schema=dumping.schema, frames=dumping.frames,
                         names=dumping.names, as_json=dumping.as_json, zipped=dumping.zipped,
                         per_host=dumping.per_host, clock={rank: -_WEEK})  # fmt: skip
        path = _file(root, machine, before, rank)
        stamp = EPOCH - _WEEK + machine.last_move
        os.utime(path, (stamp, stamp))


def _write_foreign(root: Path, rng: random.Random) -> None:
    for name, data in rng.sample(
        (
            ("README.txt", b"dumps of the job that hung on tuesday\n"),
            ("stderr.log", b"[rank3]: Watchdog caught collective operation timeout\n"),
            ("events.out.tfevents.1760000000.node0.4711.0", b'\x18\x00\x00\x00\x00\x00\x00\x00\xa3\x7fK"'),
            ("core.48213", b"\x7fELF\x02\x01\x01"),
            ("config.json", b'{"lr": 0.001, "version": "1.2"}'),
            ("py_spy_1234.txt", b"Thread 1234 (idle): MainThread\n"),
            ("job_20251120", b"array 17\n"),
        ),
        3,
    ):
        root.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
        os.utime(root / name, (EPOCH, EPOCH))
