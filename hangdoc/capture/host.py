"""Capture what this host shows of a job: all sources at once, each with its own deadline."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version

from hangdoc.capture import nccl_sources
from hangdoc.capture.assemble import (
    BlockingFiles,
    blocking_files,
    named_locks,
    process_of,
    rank_snapshot,
    with_calls_under_way,
)
from hangdoc.capture.find.awaited_keys import with_awaited
from hangdoc.capture.find.target import RankTarget, host_identity, host_name
from hangdoc.capture.inject import injection
from hangdoc.capture.notes import NoAnswerError, Notes, answered, our_fault
from hangdoc.capture.program import Program
from hangdoc.capture.rank_outputs import RankOutputs
from hangdoc.capture.read import blocked_calls, logs, native_stacks, procfs, ran_code, sockets
from hangdoc.capture.read.children import Subject, subject
from hangdoc.capture.read.device_patience import outlast_a_step
from hangdoc.capture.read.event_loops import place_tasks
from hangdoc.capture.read.exits import ExitWatch
from hangdoc.capture.read.probe_client import ProbeClient, ProbeDetails
from hangdoc.capture.read.process_looks import Look, look_at
from hangdoc.capture.read.source_files import Witness
from hangdoc.capture.request import CaptureRequest
from hangdoc.capture.safe.command_line import without_secrets
from hangdoc.capture.safe.deadline import Task
from hangdoc.capture.safe.open_files import user_of
from hangdoc.model.journal import Journal
from hangdoc.model.logged import Logged
from hangdoc.model.masked import masked
from hangdoc.model.merge import merge
from hangdoc.model.nccl import NcclStatus
from hangdoc.model.process import OpenFile, ProcessExit
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import (
    NO_PROBE,
    HostSnapshot,
    JobSnapshot,
    LogTail,
    RankSnapshot,
    Traceback,
    Unavailable,
)
from hangdoc.model.store import RendezvousStore

_LAUNCHER = -1
_LATE = 1.5
"""Seconds that a probe may take beyond the gap, on a machine that has more to do than it can. A rank with a held GIL
never answers. Judgement."""
_PATIENCE = 2.0
"""Seconds after the second look for sources that have not answered yet. Judgement."""
_INJECTION_SECONDS = 10.0
"""For all ranks: one takes 0.25 to 0.35 s (measured), as many run at once as there are processors."""
_NATIVE_SECONDS = 2.0
"""For four ranks at once; one takes 0.25 to 0.6 s (measured)."""
_COUNTING_SECONDS = 4.0
"""For the lines that all ranks have run; one takes 0.05 s (measured)."""
_SHARED_SECONDS = 0.5
"""For their last 64 KiB each. Judgement."""
_DUMP_SECONDS = 10.0
"""For the dumps of all ranks; a recorder of 2,000 calls takes 0.1 s (measured)."""
_STORE_SECONDS = 1.0
"""For finding the store and listing its keys, which takes some hundredths. Judgement."""
_NO_PROBE = Unavailable("journal", NO_PROBE)
_NO_PROBE_YET = Unavailable(
    "journal",
    "its probe has not started: it made no store or process group yet, or its Python loads no plug-ins of torch",
    "look for TORCH_DEVICE_BACKEND_AUTOLOAD=0, python -I or -E, or a torch older than 2.5",
)


def capture_job(request: CaptureRequest) -> JobSnapshot:
    """The snapshot of a job whose ranks that can be seen all run on this host; see ``capture_host``."""
    return merge([capture_host(request)])


def capture_host(request: CaptureRequest) -> JobSnapshot:
    """What this host shows of a job. ``merge`` joins it with what other hosts show.

    Looks at every process twice and asks every other source in between. Never raises for what it finds. Takes the gap
    plus about a second; a source that is silent costs at most three seconds more. What could not be read is in
    ``JobSnapshot.unavailable``.
    """
    capture = _Capture(request)
    try:
        return masked(capture.run())
    finally:
        capture.close()


_Ran = tuple[tuple[RanCode, ...], ran_code.Compiled]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the looks and the sources that are asked between them showed."""

    looks: tuple[Look, Look]
    taken: float
    network: sockets.Sockets
    details: Mapping[int, ProbeDetails | None]
    """By rank, as ``tails``."""
    tails: Mapping[int, LogTail | None]
    files: BlockingFiles
    nccl: NcclStatus | None
    dumped: Mapping[int, Journal]
    """By rank: of ranks that gave no journal, what their own dumps say."""
    shared_log: LogTail | None
    tracebacks: tuple[Traceback, ...]
    logged: Logged | None
    compiled: Mapping[int, ran_code.Compiled]
    """By pid."""


class _Capture:
    """The working state of one capture."""

    def __init__(self, request: CaptureRequest) -> None:
        self.request = request
        self.options = request.options
        self.notes = Notes()
        self.rank_of = {target.pid: target.rank for target in request.targets if target.pid is not None}
        self.exit_watch = ExitWatch()
        self.outputs = RankOutputs(request.launcher_pid, request.logs)
        self.program = Program(self.options, self.notes, self.outputs, self.rank_of)

    def close(self) -> None:
        self.exit_watch.close()

    def run(self) -> JobSnapshot:
        request = self.request
        for pid in self.rank_of:
            self.exit_watch.add(pid)
        families = self._families()
        witnesses = _witnesses(families)  # now, while the processes live
        self.program.learn(witnesses, {})
        seen = self._gather(families)
        nothing = ran_code.Compiled()
        witnesses = [replace(each, compiled=seen.compiled.get(each.pid, nothing)) for each in witnesses]
        exits = self._exits()
        ranks = tuple(
            self._rank(target, seen, families.get(target.rank), exits.get(target.rank))
            for target in sorted(request.targets, key=lambda target: target.rank)
        )
        roots = tuple(sorted({root for found in seen.details.values() if found for root in found.library_roots}))
        typed_in = {code.file: code for found in seen.details.values() if found for code in found.typed_in}
        self.program.learn(witnesses, typed_in)
        launcher = process_of(families.get(_LAUNCHER), [look.states for look in seen.looks], seen.files)
        loaded = dict.fromkeys(file for found in seen.details.values() if found for file in found.modules)
        loaded |= dict.fromkeys(file for found in seen.compiled.values() for file in found.files)
        code = self.program.read(ranks, launcher, roots, loaded)
        network = seen.network
        return JobSnapshot(
            taken=seen.taken,
            mode=request.mode,
            command=without_secrets(request.command),
            run_id=request.run_id,
            hangdoc_version=_version(),
            stalled_for=request.stalled_for,
            stall_after=request.stall_after,
            give_up_after=request.give_up_after,
            world_size=max((rank.world_size or 0 for rank in ranks), default=0) or None,
            ended=request.ended,
            exit_status=request.exit_status,
            launcher=launcher,
            ranks=ranks,
            hosts=(_host(network),),
            log=logs.telling_lines(logs.log_files(os.getpid())) if request.ended else seen.shared_log,
            written=code.written,
            tracebacks=seen.tracebacks,
            logged=seen.logged,
            store=self._store(seen),
            nccl=seen.nccl,
            sources=code.texts,
            modules=code.modules,
            library_roots=roots,
            unavailable=self._unavailable(seen, exits, code.missing),
        )

    def _gather(self, families: Mapping[int, Subject]) -> _Seen:
        """Look twice, and again where ranks wait for devices; ask the probes and read sockets and logs meanwhile, and
        the rest of /proc afterwards."""
        request = self.request
        began = time.monotonic()
        first = self._look(families)
        asked = {target.rank: Task(partial(self._ask_probe, target, first)) for target in request.targets}
        logging = {target.rank: Task(partial(self.outputs.tail_of, target)) for target in request.targets}
        everyone = [member.pid for family in families.values() for member in family.family()]
        open_sockets = Task(lambda: sockets.read_sockets(everyone))
        asking_nccl = Task(lambda: answered(nccl_sources.ask_ras(request)))
        self.program.read_ahead(first, began + self.options.gap)
        time.sleep(max(0.0, began + self.options.gap - time.monotonic()))
        second = self._look(families)
        if request.mode == "attach" and outlast_a_step(first.states, second.states, self.rank_of):
            second = self._look(families)
        taken = time.time()

        until = time.monotonic() + _PATIENCE
        network = self.notes.result(open_sockets, "sockets", until, sockets.Sockets())
        holding = Task(lambda: blocking_files(second.states, network))
        locking = Task(lambda: blocked_calls.locked_files(everyone))
        naming = Task(lambda: named_locks(second.states))
        details = {rank: self.notes.result(asked[rank], "journal", until, None, rank) for rank in asked}
        details |= self._inject([rank for rank, found in details.items() if found is None], (first, second))
        for pid, rank in self.rank_of.items():
            if (found := details.get(rank)) is not None:
                details[rank] = with_calls_under_way(found, second.states.get(pid))
        early = {
            member.pid
            for rank, found in details.items()
            if found is not None and found.counts_lines and rank in families
            for member in families[rank].family()
        }
        counted = sorted(second.states, key=lambda pid: pid not in self.rank_of)
        counting_until = time.monotonic() + _COUNTING_SECONDS
        counting = Task(lambda: ran_code.of_processes(second.states, counted, early, counting_until))
        dumped = self._own_dumps([rank for rank, found in details.items() if found is None], second, taken)
        self._advise((first, second))
        suspended = {pid: found.suspended for pid, rank in self.rank_of.items() if (found := details.get(rank))}
        for look in (first, second):
            place_tasks(look.states, suspended)
        waiting = {rank for rank, found in details.items() if found is not None and found.journal.waiting}
        self._native(waiting, first, second)
        blocked: dict[int, tuple[OpenFile, ...]] = self.notes.result(holding, "files", until, {})
        locked: dict[int, tuple[str, ...]] = self.notes.result(locking, "locks", until, {})
        named: dict[int, tuple[OpenFile, ...]] = self.notes.result(naming, "locks", until, {})
        code: dict[int, _Ran] = self.notes.result(counting, "code", counting_until + _LATE, {})
        tails = {rank: self.notes.result(logging[rank], "log", until, None, rank) for rank in logging}
        telling = Task(self.outputs.errors)
        tracing = Task(lambda: (self.outputs.tracebacks(), self.outputs.logged()))
        shared = self.notes.result(telling, "log", time.monotonic() + _SHARED_SECONDS, None)
        traces, logged = self.notes.result(tracing, "log", time.monotonic() + _SHARED_SECONDS, ((), None))
        branches = {pid: found.branches for pid, rank in self.rank_of.items() if (found := details.get(rank))}
        for pid, recorded in branches.items():
            if recorded.why:
                self.notes.missing.append(Unavailable("branches", recorded.why, rank=self.rank_of[pid]))
        if self.options.no_source:
            branches = {pid: found.without_tests() for pid, found in branches.items()}
        files = BlockingFiles(blocked, locked, named, {pid: ran for pid, (ran, _) in code.items()}, branches)
        compiled = {pid: found for pid, (_, found) in code.items()}
        nccl = self.notes.result(asking_nccl, "nccl", began + nccl_sources.RAS_SECONDS, None)
        return _Seen(
            (first, second), taken, network, details, tails, files, nccl, dumped, shared, traces, logged, compiled
        )

    def _store(self, seen: _Seen) -> RendezvousStore | None:
        """The job's store, asked for its keys where ranks wait for some."""
        journals = [found.journal for found in seen.details.values() if found is not None]
        asking = Task(lambda: answered(with_awaited(self.request.store, self.request.targets, journals)))
        return self.notes.result(asking, "store", time.monotonic() + _STORE_SECONDS, self.request.store)

    def _unavailable(
        self, seen: _Seen, exits: Mapping[int, ProcessExit], no_texts: Sequence[Unavailable]
    ) -> tuple[Unavailable, ...]:
        failures = [
            replace(failure, rank=self.rank_of[pid])
            for pid, failure in seen.looks[1].failures.items()
            if pid in self.rank_of
        ]
        # A rank that ended needs no note that its probe is silent.
        notes = [note for note in self.notes.missing if note.what != "journal" or note.rank not in exits]
        found = [*self.request.notes, *failures, *seen.network.unavailable, *notes, *no_texts]
        return tuple(dict.fromkeys(found))

    def _families(self) -> dict[int, Subject]:
        """Per rank (and the launcher) the process and what is below it."""
        processes = procfs.table()
        ranks = self.rank_of.keys()
        building = {rank: Task(partial(subject, pid, "rank", processes, ranks)) for pid, rank in self.rank_of.items()}
        launcher = self.request.launcher_pid
        if launcher is not None and launcher not in ranks and launcher in processes:
            # Where it has ranks, its other children do not belong to the job; else one may be an agent without any.
            around = {launcher: processes[launcher]} if ranks else processes
            building[_LAUNCHER] = Task(partial(subject, launcher, "launcher", around))
        pid_of = {rank: pid for pid, rank in self.rank_of.items()}
        until = time.monotonic() + 1.0
        return {
            rank: self.notes.result(task, "process", until, subject(pid_of.get(rank, 0), "rank", {}), rank)
            for rank, task in building.items()
        }

    def _look(self, families: Mapping[int, Subject]) -> Look:
        try:
            strings, attributes = self.options.keep_strings, self.request.mode == "attach"
            return look_at(families.values(), keep_strings=strings, attributes=attributes)
        except Exception as error:  # a bug in hangdoc must not cost the other sources
            self.notes.missing.append(our_fault("process", error))
            return Look({}, {})

    def _ask_probe(self, target: RankTarget, before: Look) -> ProbeDetails | None:
        if target.pid is None or not procfs.exists(target.pid):
            return None
        client = self.request.clients.get(target.pid)
        own = client is None
        if client is None and target.socket is not None:
            client = ProbeClient(target.socket, target.pid)
        if client is None:
            raise NoAnswerError(_NO_PROBE_YET if self.request.mode == "watch" else _NO_PROBE)
        state = before.states.get(target.pid)
        if state is not None and state.state in "Tt":
            raise NoAnswerError(Unavailable("journal", "the process is stopped, its probe too", "let it go on"))
        try:
            answer = client.details(self.options.gap + _LATE)
        finally:
            if own:
                client.close()
        if isinstance(answer, Unavailable):
            raise NoAnswerError(answer)
        return answer

    def _inject(self, silent: Sequence[int], looks: Sequence[Look]) -> dict[int, ProbeDetails]:
        """The answers of ranks that have no probe, where the caller allows it."""
        if not self.options.inject:
            return {}
        pid_of = {rank: pid for pid, rank in self.rank_of.items() if rank in silent and procfs.exists(pid)}
        answers = injection.collect(pid_of, [look.states for look in looks], _INJECTION_SECONDS)
        # An injected answer makes the note about the missing probe obsolete.
        self.notes.drop("journal", answers)
        for rank, answer in answers.items():
            if isinstance(answer, Unavailable):
                self.notes.missing.append(replace(answer, rank=rank))
        return {rank: answer for rank, answer in answers.items() if not isinstance(answer, Unavailable)}

    def _own_dumps(self, silent: Sequence[int], look: Look, taken: float) -> Mapping[int, Journal]:
        """What the dumps say that the recorders of ``silent`` ranks have left in files."""
        reading = Task(lambda: nccl_sources.own_dumps_of(self.request, silent, look, taken))
        nothing: tuple[dict[int, Journal], list[Unavailable]] = ({}, [])
        journals, notes = self.notes.result(reading, "journal", time.monotonic() + _DUMP_SECONDS, nothing)
        self.notes.missing = [
            note for note in self.notes.missing if note.what != "journal" or note.rank not in journals
        ]
        self.notes.missing += notes
        return journals

    def _advise(self, looks: Sequence[Look]) -> None:
        """Add the remedy for ranks without a probe. Both looks are needed to know if an injection would be safe."""
        silent = {note.rank for note in self.notes.missing if note.why == _NO_PROBE.why}
        pids = sorted(pid for pid, rank in self.rank_of.items() if rank in silent)
        if pids:
            launcher = self.request.launcher_pid
            job = launcher if launcher is not None and procfs.exists(launcher) else pids[0]
            remedy = injection.to_see_history(job, pids, [look.states for look in looks])
            self.notes.missing = [
                replace(note, remedy=remedy) if note.why == _NO_PROBE.why else note for note in self.notes.missing
            ]

    def _native(self, known: Collection[int], first: Look, second: Look) -> None:
        """Add native frames to the second look, except for ``known`` ranks, whose journal shows what they wait for."""
        if self.options.native:
            silent = [pid for pid, rank in self.rank_of.items() if rank not in known]
            failed = native_stacks.complete(first.states, second.states, silent, deadline=_NATIVE_SECONDS)
            self.notes.missing += [replace(failure, rank=self.rank_of[pid]) for pid, failure in failed.items()]

    def _exits(self) -> dict[int, ProcessExit]:
        """Rank → how it ended; the caller's own knowledge goes first."""
        found = {self.rank_of[pid]: ended for pid, ended in self.exit_watch.poll().items()}
        for pid, rank in self.rank_of.items():
            if rank not in found and not procfs.exists(pid):
                found[rank] = ProcessExit(at=time.time())
        found.update(self.request.exits)
        return found

    def _rank(self, target: RankTarget, seen: _Seen, family: Subject | None, ended: ProcessExit | None) -> RankSnapshot:
        rank = target.rank
        details, bye = seen.details[rank], self.request.byes.get(rank)
        if details is not None:
            self.notes.missing.extend(replace(item, rank=rank) for item in details.unavailable)
        elif bye is not None:
            details = bye.details
        if ended is not None and bye is not None:
            ended = bye.of(ended)
        process = process_of(family, [look.states for look in seen.looks], seen.files)
        last = self.request.journals.get(rank) or seen.dumped.get(rank)
        return rank_snapshot(target, process, details, ended, last, seen.tails[rank])


def _host(network: sockets.Sockets) -> HostSnapshot:
    return HostSnapshot(
        host_name(), network.listening, network.connections, os.cpu_count() or 0, identity=host_identity()
    )


def _witnesses(families: Mapping[int, Subject]) -> list[Witness]:
    """The ranks' processes: their source files are read as these see them."""
    return [
        Witness(family.pid, family.started, user_of(family.pid))
        for rank, family in families.items()
        if rank != _LAUNCHER and family.started
    ]


def _version() -> str:
    try:
        return version("hangdoc")
    except PackageNotFoundError:
        return ""
