"""The watch loop with a scripted follower: what is told, when, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hangdoc.model.snapshot import JobSnapshot
from hangdoc.sidecar import loop, snapshots
from hangdoc.sidecar.command import CommandState, Run
from hangdoc.sidecar.listener import Conclusion
from hangdoc.sidecar.loop import Watcher
from hangdoc.sidecar.meeting.records import Verdict
from hangdoc.sidecar.options import WatchOptions
from hangdoc.sidecar.progress import Beat

MOVING = Beat(2, moved=True, changed=False, searched=False)
STILL = Beat(2, moved=False, changed=False, searched=False)
CHANGED = Beat(2, moved=False, changed=True, searched=True)
NOBODY = Beat(0, moved=False, changed=False, searched=False)


class Told:
    """A listener that keeps what it hears; ``outcomes`` are its answers to stalls."""

    def __init__(self, *outcomes: str, carried: bool = True) -> None:
        self.outcomes = list(outcomes)
        self.carried = carried
        self.heard: list[tuple[Any, ...]] = []

    def on_start(self, pid: int) -> None: ...

    def on_nested(self, watcher: int) -> None: ...

    def on_stall(self, snapshot: JobSnapshot, number: int) -> str:
        self.heard.append(("stall", number, round(snapshot.stalled_for)))
        return self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]

    def may_end(self) -> bool:
        return self.carried

    def conclusion(self) -> None: ...

    def on_verdict(self, conclusion: Conclusion, host: str, hosts: int) -> None:
        self.heard.append(("verdict", conclusion.outcome, host))

    def on_alone(self, why: str) -> None:
        self.heard.append(("alone", why))

    def on_progress(self, sockets: object, now: float) -> None: ...

    def on_resume(self, seconds: float) -> None:
        self.heard.append(("resume", round(seconds)))

    def on_end(self, snapshot: JobSnapshot) -> None:
        self.heard.append(("end", snapshot.exit_status))

    def on_abort(self, survivors: Sequence[int]) -> None:
        self.heard.append(("abort", list(survivors)))

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
        told: Told, beats: list[Beat], *, during: Sequence[Beat] = (), seconds: int = 0, **options: Any
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
        for second in range(1, 1 + (seconds or len(beats))):
            clock[0] = float(second)
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


def test_a_second_stall_is_another_one(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 7, MOVING, *[STILL] * 7])
    assert told.heard == [("stall", 1, 5), ("resume", 8), ("stall", 2, 5)]


def test_a_rank_that_dies_during_a_stall_gives_a_new_one(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 7, CHANGED, *[STILL] * 7])
    assert told.heard == [("stall", 1, 5), ("stall", 2, 5)]


def test_a_job_that_moves_while_we_look_is_not_spoken_of(play: Play) -> None:
    told = Told("hang")
    play(told, [MOVING, *[STILL] * 5, MOVING], during=[MOVING])
    assert told.heard == []


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
    """The watches of other hosts, whose lead speaks once, in the second ``at``."""

    def __init__(self, at: int) -> None:
        self.at, self.rounds = at, 0

    def tell(self, *_: object) -> None:
        self.rounds += 1

    def holds(self, *_: object) -> bool:
        return True

    def asks(self) -> bool:
        return False

    def verdict(self) -> Verdict | None:
        heard = self.rounds == self.at
        return Verdict(1, "hang", "Rank 3 hangs it.", "hosta", may_end=True) if heard else None


@pytest.mark.parametrize(
    ("at", "beats", "ends"),
    [
        (18, [MOVING] * 10 + [STILL], True),
        (13, [MOVING] * 10 + [STILL], False),  # it may be in the middle of a step
        (18, [MOVING] * 17 + [STILL], False),
    ],
)
def test_another_hosts_verdict_ends_only_what_has_stood_still(
    play: Play, monkeypatch: pytest.MonkeyPatch, at: int, beats: list[Beat], ends: bool
) -> None:
    monkeypatch.setattr(loop, "Together", lambda *_: Away(at))
    told = Told("hang")
    play(told, beats, seconds=20, stall_after=10.0, on_hang="abort")
    assert (("verdict", "hang", "hosta") in told.heard, ("over",) in told.heard) == (True, ends)
