"""The job as the diagnosis works on it: the snapshot with its histories, activities and graph, computed once."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

from hangdoc.diagnosis.calls.channels import stage
from hangdoc.diagnosis.calls.dump_times import DumpTimes, dump_times
from hangdoc.diagnosis.calls.events import Events
from hangdoc.diagnosis.calls.history import GroupHistory, RankProgram, Token, distinct, histories, programs
from hangdoc.diagnosis.calls.message_pairs import Alone, alone
from hangdoc.diagnosis.calls.repair import smallest_repairs
from hangdoc.diagnosis.calls.stack_calls import from_stacks, held_up_in_groups, rounds_joined
from hangdoc.diagnosis.calls.streams import Streams
from hangdoc.diagnosis.execution.executions import Executions
from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.calls_between import remote_function, task_function
from hangdoc.diagnosis.source.device_calls import call_behind
from hangdoc.diagnosis.source.polls import calls_in_its_loop
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.diagnosis.state.activity import describe, in_message
from hangdoc.diagnosis.state.awaited_peers import with_peers
from hangdoc.diagnosis.state.cuts import Cuts, cuts
from hangdoc.diagnosis.state.deadlock import Deadlock, never_goes_on
from hangdoc.diagnosis.state.held_locks import (
    HeldLock,
    held_lock,
    holds_database,
    holds_entered,
    holds_for_all,
    holds_named,
)
from hangdoc.diagnosis.state.process import SLEEPS, blocking_thread, is_pasted, kind_mark
from hangdoc.diagnosis.state.rounds import GoingRound, going_round
from hangdoc.diagnosis.state.store_keys import setters, with_store_waits
from hangdoc.diagnosis.state.threads import FOLLOWED, Chain, End, Threads
from hangdoc.diagnosis.state.unseen import activity_of_hidden, hidden_ranks, whereabouts
from hangdoc.diagnosis.state.wait_graph import Graph, build
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, GONE, MESSAGES, ActivityKind, WaitReason
from hangdoc.model.operations import message_way
from hangdoc.model.process import ProcessKey, Stack
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

_UNNAMED = "asynchronous call"
_ANSWER = "waiting for the answer of a call on another rank"


@dataclass(frozen=True)
class Case:
    """One snapshot under diagnosis. Everything is derived from ``job`` and nothing changes it."""

    job: JobSnapshot

    @cached_property
    def ranks(self) -> dict[int, RankSnapshot]:
        """Rank → its snapshot."""
        return {r.rank: r for r in self.job.ranks}

    @cached_property
    def to_see_history(self) -> str:
        """What would make the ranks' calls readable, by the capture's own remedies; '' where none is known.

        Of several remedies the one that most ranks need is returned.
        """
        if any(rank.journal is not None for rank in self.job.ranks):
            return (
                "PyTorch's flight recorder has kept no call: it takes torch 2.7 or later on gloo, and "
                "TORCH_FR_BUFFER_SIZE other than 0"
            )
        found = Counter(item.remedy for item in self.job.unavailable if item.what == "journal" and item.remedy)
        return found.most_common(1)[0][0] if found else ""

    @cached_property
    def has_history(self) -> bool:
        """True if a journal holds a call or a message."""
        return any(rank.journal is not None and rank.journal.is_history for rank in self.ranks.values())

    @cached_property
    def programs(self) -> dict[int, RankProgram]:
        """Rank → its calls in program order, for ranks with a journal; {} if no journal holds any call.

        A recorder that is off, or that this torch lacks, says no more about the past than a missing journal does.
        """
        found = programs(self.job)
        recorded = any(p.journal.calls or any(m.state for m in p.journal.point_to_points) for p in found.values())
        return found if recorded else {}

    @cached_property
    def events(self) -> Events:
        """What each rank issued, in one order."""
        return Events(self.programs)

    @cached_property
    def streams(self) -> Streams:
        """Where the devices stand that execute the ranks' calls; empty where none does (gloo)."""
        return Streams(self.programs)

    @cached_property
    def times(self) -> DumpTimes:
        """What the times in dumps say; for a job that only dumps show."""
        return dump_times(self.programs, self.histories, self.streams)

    @cached_property
    def histories(self) -> list[GroupHistory]:
        """The joined histories of all groups."""
        if not self.programs:
            standing = [] if held_up_in_groups(self.activities) else from_stacks(self.activities)
            return [rounds_joined(history, self.sources) for history in standing]
        return histories(self.programs, tuple(sorted(self.ranks)) if self.job.mode == "dump" else ())

    @cached_property
    def smallest_repairs(self) -> frozenset[tuple[int, ...]]:
        """Whom the smallest repairs of all calls and messages together change: after each of them all can go on."""
        if not self.programs:
            return frozenset()
        inside = {*self.held, *self.chains}
        outside = {
            rank: self._main_thread(rank)
            for rank, activity in self.activities.items()
            if activity.kind not in COMMUNICATING and rank not in inside
        }
        where = stage(self.programs, self.histories, ended=self.ended, unknown=self.hidden, outside=outside)
        return frozenset(repair.culprits for repair in smallest_repairs(where))

    def _main_thread(self, rank: int) -> int | None:
        process = self.ranks[rank].process
        look = process.last if process is not None else None
        return look.main.python_id if look is not None and look.main is not None else None

    @cached_property
    def cuts(self) -> Cuts:
        """The hosts that cannot reach each other."""
        return cuts(self.job.hosts)

    @cached_property
    def activities(self) -> dict[int, Activity]:
        """Rank → what it does now."""
        where = whereabouts(self.job) if self.hidden else ""
        found = {
            rank: activity_of_hidden(snapshot, where)
            if rank in self.hidden
            else describe(snapshot, self.programs.get(rank), self.streams.fronts.get(rank))
            for rank, snapshot in self.ranks.items()
        }
        # A rank without a process that completed calls with others has lived and ended.
        absent = [r for r, activity in found.items() if activity.kind == ActivityKind.ABSENT]
        for rank in [r for r in absent if r in self._completed_with_others]:
            found[rank] = replace(found[rank], kind=ActivityKind.EXITED, text="ended before anybody looked at it")
        found = {rank: self._behind_a_call(a) for rank, a in found.items()}
        found = {rank: self._in_its_message(self._in_remote_call(self._polling(a))) for rank, a in found.items()}
        found = with_store_waits(found, self.sources)
        found = {r: replace(a, moving=True) if self.going_round(a) is not None else a for r, a in found.items()}
        if any(activity.kind in COMMUNICATING for activity in found.values()):
            found = {rank: self._awaiting(activity) for rank, activity in found.items()}
        return with_peers(found, self.ranks, self.sources)

    # Each branch is one of the things that may not have been seen.
    def waiting_for(self, call: Token | None) -> Stack:
        """The main thread's stack, if it waits for the task that is in ``call`` where it also submitted it: () for any
        other call.

        Example: main at `pool.submit(evaluate).result()`, a worker in the all_gather of evaluate() → main's stack. What
        decides about the call then decides about main's line. So with `await asyncio.to_thread(dist.barrier)`.
        """
        process = self.ranks[call.rank].process if call is not None and call.pending else None
        main = process.last.main if process is not None and process.last is not None else None
        thread = blocking_thread(process) if process is not None else None
        if call is None or main is None or thread is None or thread.tid == main.tid:
            return ()
        task = task_function(next(iter(user_stack(main.frames)), None), self.sources)
        tasks = user_stack(call.stack)
        mine = thread.python_id == call.thread_id if call.thread_id else call.stack == thread.frames
        run = tasks[-1:] or call.stack  # a library's function may have been handed on itself
        return main.frames if mine and task and task in [plain(frame.function) for frame in run] else ()

    def going_round(self, activity: Activity) -> GoingRound | None:
        """The loop in which a rank that sleeps goes on from item to item; None for any other rank."""
        process = self.ranks[activity.rank].process if activity.kind == ActivityKind.SLEEPING else None
        return going_round(process, self.sources) if process is not None else None

    def _in_its_message(self, activity: Activity) -> Activity:
        """``activity``; of a rank that waits for a message without a partner, with that message."""
        if activity.kind not in MESSAGES:
            return activity
        rank = activity.rank
        mine, front = self.waiting_messages.get(rank, []), self.streams.fronts.get(rank)
        if front is not None:
            mine = [each for each in mine if each.message in front.messages]
        return in_message(activity, mine[0].message, self.ranks[rank].journal) if mine else activity

    @cached_property
    def messages_alone(self) -> list[Alone]:
        """The messages that one side issued and the other did not."""
        return alone({rank: s.journal for rank, s in self.ranks.items() if s.journal is not None})

    @cached_property
    def waiting_messages(self) -> dict[int, list[Alone]]:
        """Rank → its pending messages without a partner, receives before sends: a rank waits in a receive first."""
        found: dict[int, list[Alone]] = {}
        for each in self.messages_alone:
            if not each.message.completed:
                found.setdefault(each.rank, []).append(each)
        return {
            rank: sorted(some, key=lambda each: message_way(each.message.op) != "recv") for rank, some in found.items()
        }

    def _polling(self, activity: Activity) -> Activity:
        """``activity`` as a sleep, if the look fell between two of the short sleeps of a loop that uses hardly any CPU
        time."""
        awake = activity.kind == ActivityKind.COMPUTING and not activity.moving and activity.where in activity.stack[:1]
        if not awake or not calls_in_its_loop(self.sources, activity.stack, names("sleeps")):
            return activity
        return replace(activity, kind=ActivityKind.SLEEPING, text=SLEEPS)

    def _behind_a_call(self, activity: Activity) -> Activity:
        """``activity``; of a rank that waits for its device, in the call last issued before its line."""
        unnamed = activity.kind == ActivityKind.IN_COLLECTIVE and activity.reason == WaitReason.UNNAMED
        op = call_behind(self.sources, activity.stack) if unnamed else ""
        return replace(activity, text=f"{op}, on its device", op=op, reason=None) if op else activity

    def _in_remote_call(self, activity: Activity) -> Activity:
        """``activity``; as a remote call, if it is a native wait at a line that waits for a function on another
        rank."""
        native = activity.kind == ActivityKind.LOCK and kind_mark(activity.stack) is None
        called = remote_function(activity.where, self.sources) if native else ""
        if not called or not self.sources.user_definitions(called):
            return activity
        return replace(activity, kind=ActivityKind.REMOTE_CALL, text=_ANSWER, reason=None)

    def _awaiting(self, activity: Activity) -> Activity:
        """``activity`` as a collective, if it is a native wait of unknown reason at a line that calls ``.wait()``.

        Locks, events and processes wait in Python frames, so a native wait there belongs to an asynchronous call.
        """
        if activity.reason != WaitReason.UNKNOWN or activity.where is None:
            return activity
        line = self.sources.line(activity.where.file, activity.where.line)
        asynchronous = line is not None and any(call in line for call in names("wait_call"))
        return (
            replace(activity, kind=ActivityKind.IN_COLLECTIVE, text=_UNNAMED, reason=WaitReason.UNNAMED)
            if asynchronous
            else activity
        )

    @cached_property
    def hidden(self) -> frozenset[int]:
        """Ranks that were not seen and that nothing proves to be gone. No rank of these is ever blamed."""
        return hidden_ranks(self.job, self._completed_with_others)

    @cached_property
    def seen(self) -> frozenset[int]:
        """The ranks that are not hidden."""
        return frozenset(self.ranks) - self.hidden

    @cached_property
    def _completed_with_others(self) -> frozenset[int]:
        """The members of every group in which a call completed: these ranks were alive then, seen or not."""
        # Thousands of ranks share a few groups, of thousands of members each.
        groups = {
            self.programs[rank].key(name)
            for program, ranks in distinct(self.programs)
            for name in program.recording.completed
            for rank in ranks
        }
        return frozenset(member for _, members in groups for member in members)

    @cached_property
    def graph(self) -> Graph:
        """Who waits for whom."""
        calls = {rank: held.call for rank, held in self.held.items()}
        calls |= {rank: call for rank, chain in self.chains.items() if (call := self._call_of(chain)) is not None}
        return build(
            self.job,
            self.activities,
            self.histories,
            calls,
            self.shared_locks,
            self.streams,
            chains=self.chains,
            setters=setters(self.activities, self.sources),
        )

    @cached_property
    def chains(self) -> dict[int, Chain]:
        """Rank → the threads that its wait leads to, where it leads to any."""
        threads = Threads(self.ranks, self.sources)
        waiting = [r for r, a in self.activities.items() if a.kind in FOLLOWED or a.reason == WaitReason.UNNAMED]
        found = {rank: threads.chain(rank) for rank in waiting if rank not in self.held}
        return {rank: chain for rank, chain in found.items() if chain is not None}

    def _call_of(self, chain: Chain) -> Token | None:
        """The recorded call in which the last thread of a chain waits, unless that is a main thread."""
        program = self.programs.get(chain.last.rank)
        if chain.end is not End.CALL or chain.last.is_main or program is None:
            return None
        thread = chain.last.thread.python_id
        return next((call for call in program.pending if thread is not None and call.thread_id == thread), None)

    @cached_property
    def held(self) -> dict[int, HeldLock]:
        """Rank → the lock that its main thread waits for while another of its threads holds it in a collective."""
        found: dict[int, HeldLock] = {}
        for rank, activity in self.activities.items():
            process, program = self.ranks[rank].process, self.programs.get(rank)
            if activity.kind not in (ActivityKind.LOCK, ActivityKind.NOT_VISIBLE) or process is None or program is None:
                continue
            held = held_lock(process, activity, program, self.sources)
            if held is not None:
                found[rank] = held
        return found

    @cached_property
    def shared_locks(self) -> dict[int, frozenset[int]]:
        """Rank that waits for a lock shared by processes → the ranks that hold it, by their source or the kernel."""
        waiting = {
            r: a
            for r, a in self.activities.items()
            if a.reason == WaitReason.SHARED_LOCK or a.kind in (ActivityKind.SLEEPING, ActivityKind.FILE_LOCK)
        }
        processes = {rank: s.process for rank, s in self.ranks.items() if s.process is not None} if waiting else {}
        found = {
            rank: (
                holds_for_all(processes[rank], activity, processes, self.sources)
                | holds_database(activity, processes, self.sources)
                | holds_entered(processes[rank], activity, processes, self.sources)
                | holds_named(self.ranks[rank], activity, self.ranks)
            )
            - {rank}
            for rank, activity in waiting.items()
        }
        return {rank: holders for rank, holders in found.items() if holders}

    @cached_property
    def deadlocks(self) -> dict[int, Deadlock]:
        """Rank → its deadlock, where its own threads and children prove that its main thread can never go on."""
        found: dict[int, Deadlock] = {}
        for rank, activity in self.activities.items():
            process = self.ranks[rank].process
            # A pasted stack does not show a wait's timeout.
            proof = process is not None and not is_pasted(process)
            known = never_goes_on(process, activity.kind, self.sources) if process is not None and proof else None
            found.update({rank: known} if known is not None else {})
        return found

    @cached_property
    def sources(self) -> Sources:
        """The captured sources."""
        return Sources(self.job.sources)

    @cached_property
    def execution(self) -> Executions:
        """What the ranks did in order, as far as their probes recorded it."""
        return Executions.of(self.job, self.ranks)

    @cached_property
    def program(self) -> Program:
        """What the code can do."""
        return Program.of(self.job)

    @cached_property
    def table(self) -> Table:
        """What has run and how the tests came out, by rank."""
        processes = {rank: each.process for rank, each in self.ranks.items() if each.process is not None}
        stacks = {rank: activity.stack for rank, activity in self.activities.items()}
        return Table(self.sources, self.program, processes, stacks)

    @cached_property
    def values(self) -> Values:
        """Plain values of the frames on the stacks."""
        return Values(self.job)

    @cached_property
    def ended(self) -> frozenset[int]:
        """Ranks that will never issue another call.

        Of a job that is over, only the ranks that ended by themselves: what a rank would have issued whose peers
        closed their connections, or that its launcher ended, is not known.
        """
        gone = {r for r, a in self.activities.items() if a.kind in GONE and a.kind != ActivityKind.ABSENT}
        if self.job.ended:
            ends = {r: end for r in gone if (end := self.ranks[r].exit) is not None}
            gone -= {r for r, end in ends.items() if end.exception or (end.signal and not end.leaving)}
        return frozenset(gone)

    @cached_property
    def listening(self) -> Counter[ProcessKey]:
        """Process → how many ports it listens on."""
        owners = [(host.name, port.pid) for host in self.job.hosts for port in host.listening]
        return Counter(ProcessKey(host, pid) for host, pid in owners if pid is not None)

    def own_ports(self, rank: int) -> int:
        """How many ports the rank listens on, without that of a store which it serves."""
        process, store = self.ranks[rank].process, self.job.store
        if process is None:
            return 0
        serves = store is not None and store.pid == process.pid
        return self.listening[ProcessKey(self.ranks[rank].host, process.pid)] - serves

    @cached_property
    def gloo_refused(self) -> str:
        """What gloo wrote when it aborted a rank that got more bytes than its tensor has; '' where nothing was seen."""
        logs = [*(rank.log for rank in self.job.ranks), self.job.log]
        texts = [each.message for rank in self.job.ranks if rank.exit is not None for each in rank.exit.raised]
        spoken = (line for text in texts for line in text.splitlines())
        written = (line for log in logs if log for line in reversed(log.lines))
        lines = (line for line in (*spoken, *written) if any(word in line.lower() for word in names("gloo_refusal")))
        return next(lines, "").strip()

    def last_words(self, rank: int) -> str:
        """The last line that the rank itself wrote; '' where its output shares a file with others'."""
        log = self.ranks[rank].log
        if log is None or sum(r.log is not None and r.log.path == log.path for r in self.job.ranks) > 1:
            return ""
        lines = [line.strip() for line in log.lines if any(c.isalnum() for c in line)]
        return lines[-1][:200] if lines else ""
