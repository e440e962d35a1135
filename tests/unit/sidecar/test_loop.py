"""The watch loop with a scripted follower: what is told, when, and how often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hangdoc.capture.find.target import host_name
from hangdoc.model.process import Process, ProcessExit, ProcessState
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.sidecar import loop, snapshots
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.listener import Conclusion, RankToEnd
from hangdoc.sidecar.loop import Watcher
from hangdoc.sidecar.meeting.records import Verdict
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.progress import Beat
from hangdoc.sidecar.ranks import EndedRound

MOVING = Beat(2, moved=True, changed=False, searched=False)
STILL = Beat(2, moved=False, changed=False, searched=False)
CHANGED = Beat(2, moved=False, changed=True, searched=True)
NOBODY = Beat(0, moved=False, changed=False, searched=False)


class Told:
    """A listener that keeps what it hears; ``outcomes`` are its answers to stalls."""

    def __init__(self, *outcomes: str, carried: bool = True, end: RankToEnd | None = None, doubts: str = "") -> None:
        self.outcomes = list(outcomes)
        self.carried = carried
        self.end = end
        self.doubts = doubts
        self.commands: list[str] = []
        """What became of the user's command."""
        self.heard: list[tuple[Any, ...]] = []

    def on_start(self, pid: int) -> None: ...

    def on_nested(self, watcher: int) -> None: ...

    def on_stall(self, snapshot: JobSnapshot, number: int) -> str:
        self.heard.append(("stall", number, round(snapshot.stalled_for)))
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def may_end(self) -> bool:
        return self.carried

    def conclusion(self) -> Conclusion:
        return Conclusion(self.outcomes[0], "", end=self.end)

    def doubt(self, snapshot: JobSnapshot) -> str:
        self.heard.append(("doubt", round(snapshot.stalled_for)))
        return self.doubts if snapshot.stalled_for < 20 else ""

    def on_spared(self, why: str) -> None:
        self.heard.append(("spared", why))

    def after_report(self) -> None:
        self.commands.append("begun")

    def wait_for_command(self) -> None:
        self.commands.append("waited for")

    def on_verdict(self, conclusion: Conclusion, host: str, hosts: int) -> None:
        self.heard.append(("verdict", conclusion.outcome, host))

    def on_alone(self, why: str) -> None:
        self.heard.append(("alone", why))

    def on_progress(self, sockets: object, now: float) -> None: ...

    def on_resume(self, seconds: float) -> None:
        self.heard.append(("resume", round(seconds)))

    def on_change(self, seconds: float) -> None:
        self.heard.append(("change", round(seconds)))

    def on_end(self, snapshot: JobSnapshot) -> None:
        self.heard.append(("end", snapshot.exit_status))

    def on_abort(self, survivors: Sequence[int]) -> None:
        self.heard.append(("abort", list(survivors)))

    def on_given_up(self) -> None:
        self.heard.append(("given up",))

    def on_restart(self, end: RankToEnd, *, here: bool) -> None:
        self.heard.append(("restart", end.rank, here))

    def on_no_restart(self, why: str) -> None:
        self.heard.append(("no restart", why))

    def on_restarted(self) -> None:
        self.heard.append(("restarted",))

    def on_workers_restarted(self, snapshot: JobSnapshot | None, restart: int, most: int | None) -> None:
        self.heard.append(("workers restarted", snapshot, restart, most))

    def on_blind(self, why: str) -> None:
        self.heard.append(("blind", why))


class Scripted:
    """Gives one beat after the other, the last for ever; ``during`` are the beats right after a close look."""

    def __init__(self, beats: list[Beat]) -> None:
        self.beats = beats
        self.during: list[Beat] = []
        self.targets: list[Any] = []
        self.has_agent = False
        self.looking = False
        self.watcher: Watcher

    def beat(self, now: float) -> Beat:
        if self.looking:
            self.looking = False
            return self.during.pop(0) if self.during else STILL
        return self.beats.pop(0) if len(self.beats) > 1 else self.beats[0]

    def search(self, now: float, *, thorough: bool = False) -> bool:
        self.looking = True
        return False

    def sockets(self) -> dict[int, Path]:
        return {}

    def close(self) -> None: ...


Play = Callable[..., Scripted]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    """Let a watcher live through beats one second apart; returns the follower."""
    clock = [0.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(loop, "end_job", lambda *_: [99])

    def stalled_job(*_: object, quiet: float, patience: float) -> JobSnapshot:
        return JobSnapshot(taken=0.0, mode="watch", stalled_for=quiet, stall_after=patience)

    monkeypatch.setattr(snapshots, "stalled_job", stalled_job)

    def run(
        told: Told,
        beats: list[Beat],
        *,
        during: Sequence[Beat] = (),
        seconds: int = 0,
        at: Mapping[int, Callable[[], None]] | None = None,
        **options: Any,
    ) -> Scripted:
        follower = Scripted(list(beats))
        follower.during = list(during)
        monkeypatch.setattr(loop, "Follower", lambda *_: follower)
        watched = Watcher(
            Run(("train",), "id", 2**22 + 1, Path("/nonexistent")),
            WatchOptions(**{"stall_after": 5.0, **options}),
            told,
            CommandState(),
        )
        follower.watcher = watched
        for second in range(1, 1 + (seconds or len(beats))):
            clock[0] = float(second)
            (at or {}).get(second, lambda: None)()
            if watched._round(clock[0]):
                told.heard.append(("over",))
                break
        return follower

    return run


def test_a_healthy_job_hears_nothing(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, STILL, STILL, STILL, MOVING], seconds=60)
    assert told.heard == []


def test_a_job_without_ranks_hears_nothing(play: Play) -> None:
    told = Told("hang")
    play(told, [NOBODY], seconds=60)
    assert told.heard == []


def test_a_hang_is_told_once_and_its_end(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING] + [STILL] * 40 + [MOVING, MOVING])
    assert told.heard == [("stall", 1, 5), ("resume", 41)]


def test_a_slow_job_is_looked_at_again_ever_more_rarely(play: Play) -> None:
    told = Told("slow")
    play(told, [MOVING] + [STILL] * 50)
    assert told.heard == [("stall", 1, 5), ("stall", 1, 10), ("stall", 1, 20), ("stall", 1, 40)]


def test_slow_becomes_hang_when_patience_ends(play: Play) -> None:
    told = Told("slow", "slow", "hang")
    play(told, [MOVING] + [STILL] * 60, give_up_after=12.0)
    assert told.heard == [("stall", 1, 5), ("stall", 1, 10), ("stall", 1, 12)]


def test_a_rank_that_seemed_to_work_when_patience_ended_is_soon_looked_at_again(play: Play) -> None:
    """What was announced holds, a moment later at most."""
    told = Told("slow", "slow", "slow", "hang")
    play(told, [MOVING] + [STILL] * 60, give_up_after=12.0)
    assert told.heard == [("stall", 1, 5), ("stall", 1, 10), ("stall", 1, 12), ("stall", 1, 17)]


def test_a_second_stall_is_another_one(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 7, MOVING, *[STILL] * 7])
    assert told.heard == [("stall", 1, 5), ("resume", 8), ("stall", 2, 5)]


def test_a_rank_that_dies_during_a_stall_gives_a_new_one(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 7, CHANGED, *[STILL] * 7])
    assert told.heard == [("stall", 1, 5), ("change", 8), ("stall", 2, 5)]


def test_a_job_that_moves_while_we_look_is_not_spoken_of(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 5, MOVING], during=[MOVING])
    assert told.heard == []


def test_of_a_job_that_ends_while_we_look_the_launcher_tells(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless a rank lives on, or they were dead before."""

    def rank(number: int, *, looks: bool = True, ended: bool = True) -> RankSnapshot:
        process = Process(number, 1, "rank", looks=(ProcessState(1.0, "S"),) if looks else ())
        return RankSnapshot(number, "h", "probe", process=process, exit=ProcessExit(2.0) if ended else None)

    def heard(*ranks: RankSnapshot) -> list[tuple[Any, ...]]:
        job = JobSnapshot(0.0, "watch", ranks=ranks)
        monkeypatch.setattr(snapshots, "stalled_job", lambda *_, quiet, **__: replace(job, stalled_for=quiet))
        told = Told("crashed")
        play(told, [MOVING, *[STILL] * 5])
        return told.heard

    assert heard(rank(0), rank(1)) == [("change", 5)]
    assert heard(rank(0), rank(1, ended=False)) == heard(rank(0, looks=False)) == [("stall", 1, 5)]


def test_abort_ends_a_hang_and_nothing_else(play: Play) -> None:
    told = Told("slow", "hang")
    play(told, [MOVING], seconds=3, on_hang="abort")
    play(told, [MOVING] + [STILL] * 60, on_hang="abort")
    assert told.heard == [("stall", 1, 5), ("stall", 1, 10), ("abort", [99]), ("over",)]


def test_patience_is_learnt(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 25, MOVING, *[STILL] * 90], stall_after=None)
    assert told.heard == [("stall", 1, 78)]


class Away:
    """The watches of other hosts, whose lead speaks once, in the second ``at``, and asked two seconds before."""

    def __init__(self, at: int, *, asked: bool = False, end: tuple[()] | tuple[int, int, float, str, str] = ()) -> None:
        self.at, self.rounds, self.asked, self.end = at, 0, asked, end

    def tell(self, *_: object) -> None:
        self.rounds += 1

    def holds(self, *_: object) -> bool:
        return True

    def asks(self) -> bool:
        return self.asked and self.rounds == self.at - 2

    def answer(self, snapshot: JobSnapshot) -> None: ...

    def verdict(self) -> Verdict | None:
        heard = self.rounds == self.at
        return Verdict(1, "hang", "Rank 3 hangs it.", "hosta", may_end=True, end=self.end) if heard else None


TOLD = ("verdict", "hang", "hosta")


@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize(
    ("at", "beats", "ends_at"),
    [
        (20, [MOVING] * 10 + [STILL], 20),
        (18, [MOVING] * 10 + [STILL], 20),  # hosts see the same stall begin at slightly different times
        (13, [MOVING] * 10 + [STILL], 20),
        (18, [MOVING] * 10 + [STILL] * 8 + [MOVING, STILL], None),  # an honest pause
        (18, [MOVING] * 10 + [STILL] * 8 + [CHANGED, STILL], None),
        (18, [MOVING] * 17 + [STILL], None),
    ],
)
def test_another_hosts_verdict_ends_only_what_has_stood_still_for_our_own_patience(
    play: Play, monkeypatch: pytest.MonkeyPatch, at: int, beats: list[Beat], ends_at: int | None, asked: bool
) -> None:
    monkeypatch.setattr(loop, "Together", lambda *_: Away(at, asked=asked))
    for seconds in range(18, 27):
        told = Told("hang")
        play(told, beats, seconds=seconds, stall_after=10.0, on_hang="abort")
        assert (TOLD in told.heard) == (seconds >= at)
        assert (("over",) in told.heard) == (ends_at is not None and seconds >= ends_at), seconds


def test_another_hosts_verdict_ends_nothing_that_this_host_sees_at_work_before_the_user_gives_up(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Together", lambda *_: Away(12, asked=True))
    told = Told("hang", doubts="rank 1 sleeps")
    play(told, [MOVING, STILL], seconds=60, stall_after=10.0, give_up_after=30.0, on_hang="abort")
    spared = [("doubt", 9), TOLD, ("spared", "rank 1 sleeps")]  # by what this host saw when it was asked
    assert told.heard == [*spared, ("doubt", 30), ("abort", [99]), ("over",)]
    told = Told("hang", doubts="rank 1 sleeps")
    play(told, [MOVING, STILL], seconds=60, stall_after=10.0, give_up_after=15.0, on_hang="abort")
    assert told.heard == [*spared, ("doubt", 15), ("spared", "rank 1 sleeps")]  # at work even then
    told = Told("hang")
    play(told, [MOVING, STILL], seconds=60, stall_after=10.0)
    assert told.heard == [TOLD]  # nobody asked for more than a report


def test_what_moves_while_this_host_looks_is_not_ended(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "Together", lambda *_: Away(12))
    told = Told("hang")
    play(told, [MOVING, STILL], during=[MOVING], seconds=18, stall_after=10.0, on_hang="abort")
    assert told.heard == [TOLD, ("doubt", 11), ("resume", 11)]


def test_below_the_tracebacks_of_a_job_that_another_host_has_judged_the_verdict_stands_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "Together", lambda *_: Away(18))
    told = Told("hang")
    play(told, [MOVING] * 10 + [STILL], seconds=20, stall_after=10.0).watcher._tell_the_end()
    assert told.heard == [("verdict", "hang", "hosta"), ("given up",)]


def test_the_users_command_begins_after_the_report_and_has_ended_before_the_job_is_ended(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING] + [STILL] * 10)
    assert told.commands == ["begun"]
    told = Told("hang")
    play(told, [MOVING] + [STILL] * 10, on_hang="abort")
    assert told.commands == ["begun", "waited for"]
    assert told.heard[-1] == ("over",)


def test_a_job_that_moved_while_the_command_ran_is_not_ended(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 5, MOVING, *[STILL] * 3], during=[STILL], on_hang="abort")
    assert told.heard == [("stall", 1, 5), ("resume", 5)]


END = RankToEnd(1, 77, 1000.0, host_name(), "mark")


class Ranks:
    """A roster of rank 1, whose process is ``pid``; ``ended``: of those that have ended."""

    can_wait = True

    def __init__(self) -> None:
        self.pid = 77
        self.ended: set[int] = set()
        self.ended_round: EndedRound | None = None

    def members(self) -> dict[int, Any]:
        target = SimpleNamespace(environment=(("TORCHELASTIC_MAX_RESTARTS", "2"),))
        return {1: SimpleNamespace(process=SimpleNamespace(pid=self.pid), target=target)}

    def has_ended(self, pid: int) -> bool:
        return pid in self.ended

    def update(self, targets: object) -> None: ...

    def take_ended_round(self) -> EndedRound | None:
        found, self.ended_round = self.ended_round, None
        return found

    def keep_journals(self, snapshot: JobSnapshot) -> None: ...

    def forget_journals(self) -> None: ...


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Ranks:
    made = Ranks()

    def ends(end: RankToEnd, environment: dict[str, str]) -> str:
        assert environment == {"TORCHELASTIC_MAX_RESTARTS": "2"}
        made.ended.add(end.pid)
        return ""

    monkeypatch.setattr(loop, "Roster", lambda _: made)
    monkeypatch.setattr(loop, "end_rank", ends)
    return made


def test_a_restart_ends_one_rank_and_nothing_is_a_stall_until_there_are_new_ones(play: Play, ranks: Ranks) -> None:
    told = Told("hang", end=END)
    play(told, [MOVING] + [STILL] * 60, on_hang="restart")
    assert told.heard == [("stall", 1, 5), ("restart", 1, True)]
    assert ranks.ended == {77}


def test_an_equal_verdict_is_not_answered_by_a_second_restart(play: Play, ranks: Ranks) -> None:
    told = Told("hang", end=END)
    anew = lambda: setattr(ranks, "pid", 78)  # noqa: E731
    play(told, [MOVING] + [STILL] * 30, at={20: anew}, on_hang="restart")
    assert told.heard == [
        ("stall", 1, 5),
        ("restart", 1, True),
        ("restarted",),
        ("stall", 2, 5),
        ("no restart", "an equal verdict has led to a restart before"),
    ]


def test_a_rank_of_another_host_is_not_ended_here(play: Play, ranks: Ranks) -> None:
    told = Told("hang", end=replace(END, host="elsewhere"))
    play(told, [MOVING] + [STILL] * 10, on_hang="restart")
    assert told.heard == [("stall", 1, 5), ("restart", 1, False)]
    assert ranks.ended == set()


def test_ranks_that_nobody_ended_still_hang(play: Play, ranks: Ranks) -> None:
    told = Told("hang", end=replace(END, host="elsewhere"))
    play(told, [MOVING, *[STILL] * 140, MOVING], on_hang="restart")
    late = ("no restart", "its launcher has not started new ranks in time")
    assert [what[:2] for what in told.heard[2:]] == [late, ("resume", 15)]


def test_a_restart_elsewhere_that_came_to_nothing_is_the_last_one_that_is_waited_for(
    play: Play, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Forger(Away):
        def verdict(self) -> Verdict | None:
            order = astuple(replace(END, host="elsewhere", mark=str(self.rounds)))
            return Verdict(self.rounds, "hang", "Rank 1 hangs.", "hosta", end=order) if self.rounds % 30 == 0 else None

    monkeypatch.setattr(loop, "Together", lambda *_: Forger(0))
    told = Told("slow")
    play(told, [MOVING, STILL], seconds=400, stall_after=10.0, on_hang="restart")
    assert [what[0] for what in told.heard].count("restart") == 1
    assert told.heard[-1] == ("no restart", "another host was to start one before, and nothing came of it")


def test_where_no_new_ranks_come_the_end_is_not_diagnosed(play: Play, ranks: Ranks) -> None:
    told = Told("hang", end=END)
    play(told, [MOVING] + [STILL] * 400, on_hang="restart")
    assert told.heard[2:] == [("no restart", "its launcher has not started new ranks in time")]


def test_a_job_that_ends_instead_of_starting_anew_did_not_crash(
    play: Play, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = JobSnapshot(taken=0.0, mode="watch", ended=True, exit_status=1)
    monkeypatch.setattr(snapshots, "ended_job", lambda *_: failed)
    told = Told("hang", end=END)
    play(told, [MOVING] + [STILL] * 10, on_hang="restart").watcher._tell_the_end()
    assert told.heard[2:] == [("no restart", "the command ended instead of starting new ranks")]
    told = Told("hang")
    play(told, [MOVING] + [STILL] * 10, on_hang="restart").watcher._tell_the_end()
    assert told.heard[1:] == [("end", 1)]


def test_the_verdict_of_another_host_restarts_here_what_stands_still(
    play: Play, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for asked in (True, False):
        for beats, restarted in (([MOVING] * 17 + [STILL], []), ([MOVING, STILL], [("restart", 1, True)])):
            ranks.ended.clear()
            monkeypatch.setattr(loop, "Together", lambda *_, asked=asked: Away(18, asked=asked, end=astuple(END)))
            told = Told("slow")
            play(told, beats, seconds=20, on_hang="restart")
            assert [what for what in told.heard if what[0] != "doubt"] == [TOLD, *restarted]
            assert ranks.ended == ({77} if restarted else set())


def test_a_restart_order_spares_what_this_host_sees_at_work(
    play: Play, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    for order in (END, replace(END, host="elsewhere")):
        monkeypatch.setattr(loop, "Together", lambda *_, order=order: Away(12, asked=True, end=astuple(order)))
        told = Told("slow", doubts="rank 1 computes")
        play(told, [MOVING, STILL], seconds=25, stall_after=10.0, on_hang="restart")
        assert told.heard == [("doubt", 9), TOLD, ("spared", "rank 1 computes")]
    assert ranks.ended == set()


def test_without_a_rank_to_end_a_restart_does_nothing(play: Play, ranks: Ranks) -> None:
    told = Told("hang")
    play(told, [MOVING] + [STILL] * 10, on_hang="restart")
    assert told.heard == [("stall", 1, 5)]


def test_ranks_that_the_launcher_has_started_anew_by_itself_are_told_of(play: Play, ranks: Ranks) -> None:
    told = Told("hang")
    ranks.ended_round = EndedRound(None, 1, 3)
    play(told, [MOVING, CHANGED, MOVING])
    assert told.heard == [("workers restarted", None, 1, 3)]
