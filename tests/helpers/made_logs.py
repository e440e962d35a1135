"""Lines as torch and launchers print them, made for tests. Formats by torch's version: 1.12, 2.0, 2.1, 2.2, 2.3, 2.4,
2.5, 2.8 and 2.14."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hangdoc.capture.logs.read_logs import read_logs
from hangdoc.diagnosis import diagnose
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.snapshot import JobSnapshot

DAY = "309"
"""Torch writes the 9th of March so."""


@dataclass(frozen=True)
class Torch:
    """One version's way of writing."""

    version: str = "2.8"

    @property
    def _number(self) -> tuple[int, int]:
        major, minor = self.version.split(".")
        return int(major), int(minor)

    def front(self, rank: int, at: str) -> str:
        """What stands before a record: '[rank3]:[E309 10:00:00.000000000 ProcessGroupNCCL.cpp:632] '."""
        number = self._number
        ranked = f"[rank{rank}]:" if number >= (2, 2) else ""
        time = f"{DAY} {at}000000 " if number >= (2, 4) else " "
        return f"{ranked}[E{time}ProcessGroupNCCL.cpp:632] "

    def group(self, member: int, group: str, about: str) -> str:
        """'[PG ID 1 PG GUID 7(tp) Rank 2] '."""
        number = self._number
        if number >= (2, 5):
            return f"[PG ID 1 PG GUID {group}{f'({about})' if about else ''} Rank {member}] "
        if number >= (2, 4):
            return f"[PG {group} ({about or 'undefined'}) Rank {member}] "
        return f"[PG {group} Rank {member}] " if number >= (2, 3) else f"[Rank {member}] "

    def overdue(
        self,
        rank: int,
        sequence: int = 7,
        op: str = "ALLREDUCE",
        sizes: tuple[int, int] = (64, 64),
        *,
        member: int | None = None,
        group: str = "0",
        about: str = "default_pg",
        at: str = "10:00:00.000",
        ran: int = 600_010,
        enqueued: int | None = None,
        completed: int | None = None,
        started: int | None = None,
        stack: tuple[str, ...] = (),
    ) -> str:
        """A rank's time-out, with the lines that follow it."""
        number, place = self._number, member if member is not None else rank
        about = about if group == "0" or about != "default_pg" else ""
        counted = f"SeqNum={sequence}, " if number >= (1, 13) else ""
        numel = f", NumelIn={sizes[0]}, NumelOut={sizes[1]}" if number >= (2, 1) else ""
        record = (
            f"WorkNCCL({counted}OpType={op}{numel}, Timeout(ms)=600000) ran for {ran} milliseconds before timing out."
        )
        lines = [f"{self.front(rank, at)}[Rank {place}] Watchdog caught collective operation timeout: {record}"]
        e, c = enqueued if enqueued is not None else sequence, completed if completed is not None else sequence - 1
        front = self.front(rank, at) + self.group(place, group, about)
        if number >= (2, 6):
            begun = f", last started work: {started}" if started is not None else ""
            status = f"PG status: last enqueued work: {e}{begun}, last completed work: {c}"
            lines.append(f"{front} failure detected by watchdog at work sequence id: {sequence} {status}")
        elif number >= (2, 3):
            counts = f"last enqueued NCCL work: {e}, last completed NCCL work: {c}."
            lines.append(f"{front}Timeout at NCCL work: {sequence}, {counts}")
        if stack:
            lines.append(f"{self.front(rank, at)}Stack trace of the failed collective: ")
            lines += [f"#{i} {frame}" for i, frame in enumerate(stack)]
            lines.append("")
        lines.append(
            f"{self.front(rank, at)}[Rank {place}] To avoid data inconsistency, we are taking the entire process down."
        )
        if number >= (2, 3):
            lines += [
                "terminate called after throwing an instance of 'c10::DistBackendError'",
                f"  what():  {self.group(place, group, about)}Process group watchdog thread terminated with exception: "
                f"[Rank {place}] Watchdog caught collective operation timeout: {record}",
                "frame #1: c10d::ProcessGroupNCCL::WorkNCCL::checkTimeout() + 0x282 (0x7f in /opt/lib/libtorch_cuda.so)",
            ]
        return "\n".join(lines) + "\n"

    def lives(self, rank: int, *, caller: int | None = None, enqueued: int = 6, at: str = "10:00:01.000") -> str:
        """A rank without a time-out of its own that answers another's call for dumps. The counts are the default
        group's."""
        front = self.front(rank, at) + self.group(rank, "0", "default_pg")
        asked = f"from  rank {caller}" if caller is not None else "from this local rank"
        seen = (
            f"{front}Observed flight recorder dump signal from another rank via TCPStore.\n"
            if caller is not None
            else ""
        )
        return (
            f"{seen}{front}Received a dump signal due to a collective timeout {asked} and we will try our best to dump the "
            f"debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {enqueued}.This is most likely caused\n"
        )

    def member(self, rank: int, member: int, size: int, group: str) -> str:
        """The line by which a rank tells a group's size and its place in it."""
        return (
            f"[rank{rank}]:[I{DAY} 09:00:00.000000000 ProcessGroupNCCL.cpp:959] {self.group(member, group, '')}ProcessGroupNCCL"
            f" initialization options: size: {size}, global rank: {rank}, TIMEOUT(ms): 600000, USE_HIGH_PRIORITY_STREAM: 0\n"
        )


def elastic(
    *ends: tuple[int, int, str], asked: tuple[int, ...] = (), host: str = "gpu-1", root: int | None = None
) -> str:
    """torchelastic's summary of (rank, exit code, time) ends. The pid of rank r is 100 + r."""
    text = "".join(
        f"W0309 10:00:05.000000 900 site-packages/torch/distributed/elastic/multiprocessing/api.py:900] Sending process "
        f"{100 + rank} closing signal SIGTERM\n"
        for rank in asked
    )
    first = root if root is not None else ends[0][0]
    text += (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        + "=" * 60
        + "\ntrain.py FAILED\nFailures:\n"
    )
    ordered = [*(end for end in ends if end[0] != first), *(end for end in ends if end[0] == first)]
    for i, (rank, code, at) in enumerate(ordered):
        if rank == first:
            text += "-" * 60 + "\nRoot Cause (first observed failure):\n"
        text += (
            f"[{i}]:\n  time      : 2026-03-09_{at}\n  host      : {host}\n  rank      : {rank} (local_rank: {rank})\n"
            f"  exitcode  : {code} (pid: {100 + rank})\n  error_file: <N/A>\n  traceback : none\n"
        )
    return text + "=" * 60 + "\n"


def traceback(rank: int | None, error: str, *frames: tuple[str, int, str]) -> str:
    """A traceback of (file, line, function) frames, outermost first."""
    front = f"[rank{rank}]: " if rank is not None else ""
    lines = [f"{front}Traceback (most recent call last):"]
    for file, line, function in frames:
        lines += [f'{front}  File "{file}", line {line}, in {function}', f"{front}    work()"]
    return "\n".join([*lines, f"{front}{error}"]) + "\n"


def read(folder: Path, **files: str) -> JobSnapshot:
    """The snapshot of files with these names (``train`` is train.log; '__' stands for '/') and texts."""
    for name, text in files.items():
        path = folder / "logs" / (name.replace("__", "/") + ("" if "." in name else ".log"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    job = read_logs([folder / "logs"])
    assert job is not None
    return job


def verdict(folder: Path, **files: str) -> Diagnosis:
    """The diagnosis of the same."""
    return diagnose(read(folder, **files))
