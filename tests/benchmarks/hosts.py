"""What a job on a thousand hosts costs: the meeting, the digests, the merge, and the verdict.

    python tests/benchmarks/hosts.py [--hosts 125 1000] [--ranks 8] [--calls 2000] [--calm 30]

The lead is a process of its own with a real meeting: torch's TCPStore in its helper, the real protocol, its reading and
joining, its diagnosis. The other hosts are replayed by a few processes, each with many connections: every host has
its own ranks, pids, times and ports, its real digest and its real pieces. What a thousand hosts would do at the same
moment, each for itself, is done before: their captures and their digests (how long one takes is printed, too).

All hosts move for ``--calm`` seconds, in which the cost of the healthy lead is measured; then all stand still, one rank
having issued one call too many, and the time is taken until the verdict. Prints a table, one row for each size.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

import psutil
from many_hosts import PATIENCE, host

from hangdoc.capture.find.target import RankTarget
from hangdoc.model.process import Thread
from hangdoc.model.snapshot import RankSnapshot
from hangdoc.sidecar.meeting import place
from hangdoc.sidecar.meeting.boards import StoreBoard
from hangdoc.sidecar.meeting.digest import Digested, digested
from hangdoc.sidecar.meeting.helper import StoreHelper
from hangdoc.sidecar.meeting.member import Member
from hangdoc.sidecar.meeting.records import CALM_SECONDS
from hangdoc.sidecar.meeting.together import Together
from hangdoc.sidecar.meeting.wire import withheld
from hangdoc.sidecar.meeting.wishes import Standing, Wishes
from hangdoc.sidecar.options import WatchOptions

KEY = bytes(range(32))


class Digests:
    """Digests of all hosts. Of all but the last host they are one that hangdoc made of a host, with other ranks, pids,
    addresses and times in it: to make each would take a processor minutes."""

    def __init__(self, hosts: int, ranks: int, calls: int) -> None:
        self._sizes = hosts, ranks, calls
        shown = withheld(host(1, *self._sizes), send_sources=False)
        began = time.process_time()
        self._made = digested(shown)
        self._made.written()
        self.seconds = time.process_time() - began

    def of(self, number: int) -> Digested:
        """The digest of the host with that number."""
        hosts, ranks, _ = self._sizes
        if number == hosts - 1:
            return digested(withheld(host(number, *self._sizes), send_sources=False))
        made = self._made.digest
        first, world = number * ranks, hosts * ranks
        plain = host(number, hosts, ranks, 1, with_expected=False)
        own = {rank.rank - first: rank for rank in plain.ranks if rank.process is not None}
        shown = tuple(with_process_of(rank, own[at]) for at, rank in enumerate(made.job.ranks[:ranks]))
        before, after = made.job.ranks[ranks:]
        job = replace(
            made.job, taken=plain.taken, hosts=plain.hosts, ranks=(*shown, before, replace(after, rank=first + ranks))
        )
        expected = ((ranks, 0, first), (ranks + 1, first + ranks, world - first - ranks))
        histories = tuple(replace(each, since=each.since + (number - 1) * ranks * 17) for each in made.histories)
        return Digested(replace(made, job=job, expected=expected, histories=histories), self._made.known)


def with_process_of(rank: RankSnapshot, own: RankSnapshot) -> RankSnapshot:
    """``rank`` of the digest as if it were ``own``."""
    assert rank.process is not None
    assert own.process is not None
    (first, last), (before, after) = rank.process.looks, own.process.looks
    same = set(map(int, first.threads[-1].name.split()))
    changed = [thread for place, thread in enumerate(before.threads) if place not in same]
    looks = (
        replace(before, threads=(*map(folded_as, changed, first.threads), first.threads[-1])),
        replace(after, threads=tuple(map(folded_as, after.threads, last.threads))),
    )
    return replace(own, process=replace(own.process, looks=looks), journal=rank.journal, first_store=rank.first_store)


def folded_as(thread: Thread, like: Thread) -> Thread:
    return replace(thread, frames=like.frames, python_id=like.python_id)


# --- the hosts that are replayed ------------------------------------------------------------------------------------


class Replayed:
    """One host: its digest at hand, a real member at the real store."""

    def __init__(self, number: int, made: Digested, port: int) -> None:
        self.data, self.known = b"#" + made.written(), made.pieces
        job = made.digest.job
        own = tuple(rank.rank for rank in job.ranks if rank.process is not None)
        name = job.hosts[0].name
        targets = tuple(RankTarget(rank, 1, "probe", job.world_size) for rank in own)
        self.wishes = Wishes(Standing(targets, None, time.monotonic()))
        self.member = Member(StoreBoard("127.0.0.1", port, KEY), f"{name}-{number}", name, job.hosts[0].identity)
        self.due = time.monotonic() + CALM_SECONDS * (number % 97) / 97
        self.answered = 0
        self.told = False

    def step(self, stalled_at: float) -> None:
        """Do what this host's watch would do now."""
        now = time.monotonic()
        still = now - stalled_at + PATIENCE if now > stalled_at else None
        pressing = (still is None) != (self.wishes.standing.still is None)
        if now < self.due and not pressing:
            return
        self.wishes = replace(self.wishes, standing=replace(self.wishes.standing, still=still, at=now))
        view = self.member.step(now, self.wishes)
        if view.wanted and view.asked > self.answered:
            self.answered = view.asked
            self.wishes = replace(self.wishes, answer=(view.asked, self.data), known=self.known)
            view = self.member.step(now, self.wishes)
        self.told |= view.verdict is not None
        waiting = view.asked > (view.verdict.round if view.verdict is not None else 0)
        self.due = now + (CALM_SECONDS if still is None else view.pause if waiting else 1.0)


def replay(first: int, last: int, hosts: int, ranks: int, calls: int, port: int, lines: object) -> None:
    """Be the hosts ``first`` to ``last`` until the last line has come; the line before it says when all stand still."""
    digests = Digests(hosts, ranks, calls)
    largest = 0
    guests: list[Replayed] = []
    for number in range(first, last):
        guests.append(Replayed(number, digests.of(number), port))
        largest = max(largest, len(guests[-1].data))
        if (number - first) % 8 == 0:
            for guest in guests:
                guest.step(float("inf"))
    print(json.dumps({"largest": largest, "seconds": digests.seconds}), flush=True)
    stalled_at, over = [float("inf")], []
    threading.Thread(target=_listen, args=(stalled_at, over), daemon=True).start()
    while not over:
        for guest in guests:
            guest.step(stalled_at[0])
        time.sleep(0.02)
    print(json.dumps({"told": sum(guest.told for guest in guests)}), flush=True)


def _listen(stalled_at: list[float], over: list[bool]) -> None:
    stalled_at[0] = float(sys.stdin.readline())
    sys.stdin.readline()
    over.append(True)


# --- the lead -------------------------------------------------------------------------------------------------------


def lead(hosts: int, ranks: int, calls: int, calm: float) -> None:
    """Lead the meeting in this process, and print what it took."""
    from hangdoc.diagnosis import diagnose

    helper = StoreHelper("127.0.0.1", 0, os.getpid())
    board = StoreBoard("127.0.0.1", helper.port, KEY)
    found = place.Place(board, KEY, helper, leads=True)
    import hangdoc.sidecar.meeting.meeting as module

    module.open_place = lambda *_, **__: found  # a job's own store is not what is measured
    said: list[str] = []
    together = Together(WatchOptions(give_up_after=600.0), said.append)
    environment = (("MASTER_ADDR", "10.0.0.1"), ("LOCAL_WORLD_SIZE", str(ranks)), ("WORLD_SIZE", str(hosts * ranks)))
    targets = [
        RankTarget(rank, os.getpid() if rank < ranks else None, "probe", hosts * ranks, environment=environment)
        for rank in range(hosts * ranks)
    ]
    print(json.dumps({"port": helper.port}), flush=True)
    events: list[float] = []
    threading.Thread(target=lambda: events.append(float(sys.stdin.readline())), daemon=True).start()
    me, other = psutil.Process(), psutil.Process(helper.pid)
    began: tuple[float, float, float] | None = None
    meeting = together._meeting
    while not events:
        together.tell(targets, 0.0, time.monotonic())
        seats = getattr(meeting.view, "seats", ())
        if began is None and len(seats) >= hosts - 1:
            print(json.dumps({"all": True}), flush=True)
            began = time.monotonic(), cpu(me), cpu(other)
        time.sleep(1.0)
    assert began is not None
    passed = time.monotonic() - began[0]
    shares = [(cpu(me) - began[1]) / passed, (cpu(other) - began[2]) / passed]
    healthy = [me.memory_info().rss, other.memory_info().rss]
    own = host(0, hosts, ranks, calls)
    while time.monotonic() < events[0]:
        time.sleep(0.01)
    at, used = time.monotonic(), time.process_time()
    together.tell(targets, PATIENCE, at)
    while together.holds(PATIENCE, PATIENCE, time.monotonic()):
        together.tell(targets, PATIENCE, time.monotonic())
        time.sleep(0.1)
    agreed = time.monotonic()
    marks: dict[str, float] = {}
    timed(marks)
    whole = together.look(lambda: own)
    looked = time.monotonic()
    before = time.process_time()
    verdict = diagnose(whole)
    ended, after = time.monotonic(), time.process_time()
    from hangdoc.sidecar.listener import Conclusion

    together.conclude(Conclusion(verdict.outcome, verdict.verdict, "", may_end=True))
    time.sleep(3.0)
    seen = sum(rank.process is not None for rank in whole.ranks)
    print(
        json.dumps(
            {
                "calm": calm, "lead": shares[0], "helper": shares[1], "healthy_mb": [round(b / 1e6) for b in healthy],
                "peak_mb": resident_peak(os.getpid()), "helper_peak_mb": resident_peak(helper.pid),
                "all_still_s": agreed - at, "look_s": looked - agreed, "diagnose_s": ended - looked,
                "verdict_s": ended - at, "verdict_cpu_s": after - used, "diagnose_cpu_s": after - before,
                "ranks": seen, "verdict": verdict.verdict[:200], "culprits": verdict.culprits,
                "notes": [note.why for note in whole.unavailable][:3], **marks,
            }
        ),
        flush=True,
    )  # fmt: skip
    sys.stdin.readline()
    together.close()
    helper.close()


def timed(marks: dict[str, float]) -> None:
    """Have the steps of the look timed: ``unfold``, ``pieces`` (in it), ``merge``, ``join`` (merge in it)."""
    from hangdoc.sidecar.meeting import gathering, unfold, wire

    for where, name in ((gathering, "unfolded"), (wire, "joined"), (wire, "merge"), (unfold.Unfolding, "snapshots")):
        way = getattr(where, name)

        def wrapped(*args: object, way: object = way, name: str = name, **named: object) -> object:
            at, used = time.monotonic(), time.process_time()
            found = way(*args, **named)  # type: ignore[operator]
            marks[f"{name}_s"] = marks.get(f"{name}_s", 0.0) + time.monotonic() - at
            marks[f"{name}_cpu_s"] = marks.get(f"{name}_cpu_s", 0.0) + time.process_time() - used
            return found

        setattr(where, name, wrapped)


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def resident_peak(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return round(int(text.split("VmHWM:")[1].split()[0]) / 1024)


# --- the run ----------------------------------------------------------------------------------------------------------


def run(hosts: int, ranks: int, calls: int, calm: float, processes: int) -> dict[str, Any]:
    """One row of the table."""
    common = [str(hosts), str(ranks), str(calls)]
    leading = start("lead", *common, str(calm))
    others: list[subprocess.Popen[str]] = []
    try:
        port = said(leading)["port"]
        bounds = [1 + (hosts - 1) * n // processes for n in range(processes + 1)]
        others = [
            start("replay", str(bounds[n]), str(bounds[n + 1]), *common, str(port))
            for n in range(processes)
            if bounds[n] < bounds[n + 1]
        ]
        prepared_ = [said(other) for other in others]
        said(leading)
        time.sleep(calm)
        at = time.monotonic() + 0.5
        for process in (*others, leading):
            tell(process, str(at))
        row = said(leading)
        print(json.dumps(row), file=sys.stderr, flush=True)
        for process in others:
            tell(process, "")
        told = sum(said(other)["told"] for other in others)
        tell(leading, "")
        largest = max(each["largest"] for each in prepared_)
        seconds = sum(each["seconds"] for each in prepared_) / len(prepared_)
        return {"hosts": hosts, **row, "digest_kb": largest / 1000, "digest_s": seconds, "told": told}
    finally:
        for process in (*others, leading):
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--part", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    line = process.stdout.readline()
    if not line:
        raise SystemExit("a part of the simulation has failed")
    return json.loads(line)


def tell(process: subprocess.Popen[str], line: str) -> None:
    process.stdin.write(line + "\n")
    process.stdin.flush()


def main() -> None:
    """Run, print."""
    if sys.argv[1:2] == ["--part"]:
        part, *rest = sys.argv[2:]
        if part == "lead":
            lead(*map(int, rest[:3]), float(rest[3]))
        else:
            replay(*map(int, rest), sys.stdin)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", nargs="*", type=int, default=[125, 1000])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--calm", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    rows = []
    for hosts in options.hosts:
        rows.append(run(hosts, options.ranks, options.calls, options.calm, options.processes))
    print(table(rows, options.ranks))


def table(rows: list[dict[str, Any]], ranks: int) -> str:
    """The rows as they stand in hangdoc/guide/watches.md."""
    lines = {
        f"hosts of {ranks} ranks": "{hosts:,}",
        "lead while healthy, % of a core": "{lead:.1%}",
        "its helper": "{helper:.1%}",
        "memory of both, healthy and at most": "{healthy_mb} and {most_mb} MB",
        "largest digest of a host": "{digest_kb:.0f} KB",
        "all still to verdict": "{verdict_s:.1f} s",
        "of it processor time of the lead": "{verdict_cpu_s:.1f} s",
        "merge": "{merge_cpu_s:.2f} s",
        "diagnosis": "{diagnose_cpu_s:.1f} s",
        "hosts that heard the verdict in 3 s": "{told:,}",
    }
    for row in rows:
        row["most_mb"] = row["peak_mb"] + row["helper_peak_mb"]
        row["healthy_mb"] = sum(row["healthy_mb"])
    columns = [[name, *(form.format(**row) for row in rows)] for name, form in lines.items()]
    rule = ["---"] * (len(rows) + 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns[0], rule, *columns[1:]))


if __name__ == "__main__":
    main()
