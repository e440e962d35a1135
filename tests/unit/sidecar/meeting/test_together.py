"""When a watch looks although there are others, and what it makes of them; with a meeting that the test plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from many_hosts import host

from hangdoc.capture.find.target import RankTarget, host_identity
from hangdoc.capture.safe import spare_memory
from hangdoc.diagnosis import diagnose
from hangdoc.model.codec import Allowance
from hangdoc.model.merge import merge
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot
from hangdoc.sidecar.listener import Conclusion, RankToEnd
from hangdoc.sidecar.meeting import gathering, together
from hangdoc.sidecar.meeting.digest import digested
from hangdoc.sidecar.meeting.gathering import prepared
from hangdoc.sidecar.meeting.lead import LeadView, Seat
from hangdoc.sidecar.meeting.meeting import AloneView, View
from hangdoc.sidecar.meeting.member import MemberView
from hangdoc.sidecar.meeting.pieces import Digest
from hangdoc.sidecar.meeting.records import Beat, Verdict
from hangdoc.sidecar.meeting.together import Together
from hangdoc.sidecar.meeting.wire import packed, withheld
from hangdoc.sidecar.meeting.wishes import SILENT_SECONDS, Standing
from hangdoc.sidecar.options import WatchOptions


class Played:
    """A meeting whose view the test sets. ``replies``: what the view becomes when the lead asks."""

    def __init__(self, meet: str) -> None:
        self.view: View = AloneView()
        self.verdict: Verdict | None = None
        self.begun = False
        self.late_by = 0.0
        self.asked: list[tuple[str, ...]] = []
        self.pieces: dict[str, tuple[str, ...]] = {}
        self.published: list[Verdict] = []
        self.answers: list[tuple[int, bytes]] = []
        self.known: list[Any] = []
        self.replies: Callable[[tuple[str, ...]], View] | None = None

    def tell(self, standing: object) -> None: ...

    def begin(self) -> None:
        self.begun = True

    def ask(self, members: tuple[str, ...], pieces: dict[str, tuple[str, ...]] | None = None) -> int:
        self.asked.append(members)
        self.pieces = pieces or {}
        if self.replies is not None:
            self.view = self.replies(members)
        return len(self.asked)

    def publish(self, verdict: Verdict) -> None:
        self.published.append(verdict)

    def answer(self, number: int, snapshot: bytes, known: Any = None) -> None:
        self.answers.append((number, snapshot))
        self.known.append(known)

    def wait_for(self, enough: Callable[[View], bool], seconds: float) -> View:
        return self.view

    def leave(self, end: bytes, known: Any = None) -> None: ...

    def close(self) -> None: ...


class Watch:
    """A watch of ranks 0 and 1 of 4, that has been quiet for ``quiet`` seconds of a patience of 30."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        self.now = 1000.0
        monkeypatch.setattr(together, "Meeting", Played)
        monkeypatch.setattr(together.time, "monotonic", lambda: self.now)
        self.said: list[str] = []
        self.together = Together(WatchOptions(**options), self.said.append)
        self.meeting: Any = self.together._meeting

    def quiet(self, seconds: float, *, world: int = 4) -> Together:
        here = (("LOCAL_WORLD_SIZE", "2"), ("WORLD_SIZE", str(world)))
        targets = [
            RankTarget(rank, 10 + rank if rank < 2 else None, "probe", world, environment=here if rank < 2 else ())
            for rank in range(world)
        ]
        self.together.tell(targets, seconds, self.now)
        return self.together

    def holds(self, seconds: float, view: View) -> bool:
        self.meeting.view = view
        return self.quiet(seconds).holds(seconds, 30.0, self.now)


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch(monkeypatch)
    made.quiet(0.0)
    made.now += 100.0
    return made


def seat(*ranks: int, still: float | None = 40.0, at: float = 1100.0, name: str = "b", **beat: Any) -> Seat:
    return Seat(Beat(f"{name}-1", name, f"identity of {name}", ranks, 4, 1, still=still, **beat), at)


def shown(*ranks: int, host: str = "a") -> JobSnapshot:
    found = [
        RankSnapshot(rank, host if rank in ranks else "", "probe" if rank in ranks else "expected", world_size=4,
                     exit=_gone() if rank in ranks else None)
        for rank in range(4)
    ]  # fmt: skip
    return JobSnapshot(1.0, "watch", ranks=tuple(found), hosts=(HostSnapshot(host),), world_size=4)


def _gone() -> Any:
    from hangdoc.model.process import ProcessExit

    return ProcessExit(at=1.0)


def answering(data: bytes | str) -> Callable[[tuple[str, ...]], View]:
    return lambda asked: LeadView((seat(2, 3),), 1, asked, dict.fromkeys(asked, data))


def test_a_job_on_one_host_is_watched_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    assert not watch.quiet(31.0, world=2).holds(31.0, 30.0, watch.now)
    own = shown(0, 1)
    assert watch.together.look(lambda: own) is own
    assert watch.together.end(own) is own
    assert (watch.said, watch.meeting.asked) == ([], [])


Targets = list[RankTarget]


def some(here: int, world: int, **environment: str) -> Targets:
    variables = tuple(environment.items())
    return [
        RankTarget(
            rank, 10 + rank if rank < here else None, "probe", world, environment=variables if rank < here else ()
        )
        for rank in range(world)
    ]


@pytest.mark.parametrize(
    ("targets", "own", "elsewhere"),
    [
        (some(2, 4, LOCAL_WORLD_SIZE="2", WORLD_SIZE="4"), {}, True),
        (some(2, 4, LOCAL_WORLD_SIZE="4", WORLD_SIZE="4"), {}, False),  # they have not all been started yet
        (some(2, 4, LOCAL_WORLD_SIZE="4", WORLD_SIZE="4"), {"RANK": "0"}, False),
        (some(2, 4), {}, False),  # mp.spawn
        (some(2, 4, MASTER_ADDR="localhost"), {}, False),
        (some(1, 4, MASTER_ADDR="localhost"), {"RANK": "0"}, True),
        (some(1, 4, MASTER_ADDR="localhost"), {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, True),
        (some(1, 4, MASTER_ADDR="localhost"), {"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, False),
        (some(1, 4, MASTER_ADDR="10.0.0.1"), {}, True),
        (some(4, 4, MASTER_ADDR="10.0.0.1"), {"RANK": "0"}, False),
        (some(0, 4), {"RANK": "0"}, False),
    ],
)
def test_who_has_ranks_elsewhere(targets: Targets, own: dict[str, str], elsewhere: bool) -> None:
    assert Standing(tuple(targets)).has_ranks_elsewhere(own) is elsewhere


def test_ranks_of_a_complete_job_that_die_are_not_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    for here in (4, 3):
        watch.together.tell(some(here, 4, MASTER_ADDR="10.0.0.1"), 31.0, watch.now)
        assert not watch.together.holds(31.0, 30.0, watch.now)
    assert not watch.meeting.begun
    watch.together.tell(some(3, 8, MASTER_ADDR="10.0.0.1"), 31.0, watch.now)  # another job, on more hosts
    assert watch.meeting.begun


def test_meet_off_is_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, meet="off")
    assert not watch.quiet(31.0).holds(31.0, 30.0, watch.now)
    assert watch.said == []


def test_others_get_some_time_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    assert watch.holds(31.0, AloneView("not yet"))
    assert not watch.holds(31.0, AloneView("it broke", lost=True))
    watch.now += 60.0
    assert not watch.holds(31.0, AloneView("not yet"))


def test_the_lead_waits_for_hosts_that_work_and_for_no_longer_than_it_may(watch: Watch) -> None:
    assert watch.holds(31.0, LeadView((seat(2, 3, still=None),)))
    assert watch.holds(31.0, LeadView((seat(2, 3, still=5.0),)))
    assert not watch.holds(31.0, LeadView((seat(2, 3, still=30.0),)))
    assert not watch.holds(31.0, LeadView((seat(2, 3, still=None, at=watch.now - SILENT_SECONDS - 1),)))
    assert not watch.holds(31.0, LeadView((seat(2, 3, still=None, left=True),)))
    assert not watch.holds(600.0, LeadView((seat(2, 3, still=None),)))


def test_a_member_leaves_it_to_the_lead_as_long_as_that_does_something(watch: Watch) -> None:
    assert watch.holds(31.0, MemberView("lead", "a"))
    assert not watch.holds(31.0, MemberView("lead", "a", silent=True))
    assert not watch.holds(31.0, MemberView("lead", "a", refused=True))
    assert not watch.holds(60.0, MemberView("lead", "a"))
    assert watch.holds(60.0, MemberView("lead", "a", waiting=True))
    watch.quiet(60.0)
    assert watch.holds(60.0, MemberView("lead", "a", asked=1))  # it has asked during this stall
    watch.now += 100.0
    assert not watch.holds(60.0, MemberView("lead", "a", asked=1))  # that was an earlier one


def test_all_hosts_are_joined_and_the_verdict_is_told(watch: Watch) -> None:
    watch.meeting.replies = answering(packed(shown(2, 3, host="b"), send_sources=True))
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: shown(0, 1))
    assert watch.meeting.asked == [("b-1",)]
    assert [(rank.rank, rank.host) for rank in whole.ranks] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert whole.unavailable == ()
    watch.together.conclude(Conclusion("hang", "Rank 3 hangs it.", "/x", may_end=True))
    (verdict,) = watch.meeting.published
    assert (verdict.round, verdict.sentence, verdict.hosts, verdict.may_end) == (1, "Rank 3 hangs it.", 2, True)


def test_a_verdict_names_the_rank_to_end_by_pid_start_and_host(watch: Watch) -> None:
    watch.meeting.replies = answering(packed(shown(2, 3, host="b"), send_sources=True))
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    watch.together.look(lambda: shown(0, 1))
    watch.together.conclude(Conclusion("hang", "", end=RankToEnd(3, 4711, 1.5, "b", "mark")))
    (verdict,) = watch.meeting.published
    assert verdict.end == (3, 4711, 1.5, "b", "mark")


@pytest.mark.parametrize("minutes", [-7, 0, 7])
def test_a_host_whose_clock_is_wrong_was_looked_at_at_the_same_moment(watch: Watch, minutes: int) -> None:
    there = replace(shown(2, 3, host="b"), taken=1.0 + 60.0 * minutes)
    watch.meeting.replies = answering(packed(there, send_sources=True))
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: shown(0, 1))
    assert (whole.taken, whole.unavailable) == (1.0, ())
    assert [rank.exit.at for rank in whole.ranks if rank.exit] == [1.0, 1.0, 1.0 - 60.0 * minutes, 1.0 - 60.0 * minutes]


def test_a_verdict_that_has_come_is_told_before_anything_is_judged_here(watch: Watch) -> None:
    lost = AloneView("the lead is gone", lost=True)
    assert not watch.holds(31.0, lost)
    watch.meeting.verdict = Verdict(1, "hang", "Rank 3 hangs it.", "b")
    assert watch.holds(31.0, lost)
    assert watch.together.verdict() is not None
    assert not watch.holds(31.0, lost)


def test_after_a_restart_other_watches_get_time_again(watch: Watch) -> None:
    assert not watch.holds(31.0, AloneView("the lead is gone", lost=True))
    targets = [RankTarget(rank, 20 + rank if rank < 2 else None, "probe", 4) for rank in range(4)]
    watch.together.tell(targets, 0.0, watch.now)
    watch.now += 5.0
    assert watch.together.holds(31.0, 5.0, watch.now)
    watch.now += 60.0
    assert not watch.together.holds(31.0, 5.0, watch.now)


def test_a_job_that_has_shrunk_to_this_host_lacks_nobody(watch: Watch) -> None:
    watch.meeting.view = AloneView("the lead is gone", lost=True)
    watch.together.tell([RankTarget(rank, 20 + rank, "probe", 2) for rank in range(2)], 31.0, watch.now)
    assert not watch.together.holds(31.0, 30.0, watch.now)
    own = shown(0, 1)
    assert watch.together.look(lambda: own) is own
    assert watch.said == []
    watch.quiet(0.0)  # and it grows again
    assert watch.together.holds(31.0, 30.0, watch.now)


def test_digests_become_the_whole_job(watch: Watch) -> None:
    own, other = (replace(host(number, 2, 2, 200), command=("torchrun",)) for number in (0, 1))
    sent, known = prepared(other, digest=True, send_sources=False)
    assert known is not None

    def replies(asked: tuple[str, ...]) -> View:
        wanted = watch.meeting.pieces
        answer = known(wanted["b-1"]) if wanted else sent
        return LeadView((seat(2, 3),), len(watch.meeting.asked), asked, {"b-1": answer})

    watch.meeting.replies = replies
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: own)
    assert watch.meeting.asked == [("b-1",), ("b-1",)]
    told = [[call.sequence for call in rank.journal.calls] for rank in whole.ranks if rank.journal]
    assert told == [list(range(1, 201))] * 4
    assert diagnose(whole).culprits == diagnose(merge([own, other])).culprits == (3,)
    watch.together.conclude(Conclusion("hang", "Rank 3 hangs it."))
    assert [verdict.round for verdict in watch.meeting.published] == [2]  # the last question is what it answers


def test_digests_of_many_are_read_as_they_come(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [replace(host(number, 12, 1, 200), command=("torchrun",)) for number in range(12)]
    made = {f"h{n}-1": prepared(hosts[n], digest=True, send_sources=False) for n in range(1, 12)}
    seats = tuple(seat(n, name=f"h{n}") for n in range(12))
    odd = replace(seats[11], refused="it shows another job")
    came: list[str] = []
    events: list[str] = []
    read_digest = gathering.read_digest

    def read(data: bytes, where: str, room: Allowance) -> Digest:
        events.append(f"read {where}")
        return read_digest(data, where, room)

    def wait_for(enough: Callable[[View], bool], seconds: float) -> View:
        while not enough(watch.meeting.view):
            wanted, asked = watch.meeting.pieces, watch.meeting.asked[-1]
            some = [member for member in asked if member not in came][:4]
            if not some:
                break
            came.extend(some)
            events.append("wait")
            answers = dict(watch.meeting.view.answers)
            for member in some:
                sent, known = made[member]
                assert known is not None
                answers[member] = known(wanted[member]) if wanted else sent
            fitting = (*seats[1:11], odd if len(came) > 4 else seats[11])
            watch.meeting.view = LeadView(fitting, len(watch.meeting.asked), asked, answers)
        return watch.meeting.view

    def replies(asked: tuple[str, ...]) -> View:
        came.clear()
        return LeadView(seats[1:], len(watch.meeting.asked), asked)

    monkeypatch.setattr(gathering, "read_digest", read)
    monkeypatch.setattr(watch.meeting, "wait_for", wait_for)
    watch.meeting.replies = replies
    watch.quiet(31.0, world=12)
    watch.meeting.view = LeadView(seats[1:])
    whole = watch.together.look(lambda: hosts[0])
    reads = [event for event in events if event != "wait"]
    assert len(reads) == len(set(reads)) == 11  # each once; that of h11 came before it was refused
    first = events.index("wait", 1)
    assert 0 < len([event for event in events[:first] if event != "wait"]) < len(reads)  # some before the others came
    seen = {rank.rank for rank in whole.ranks if rank.process is not None}
    assert seen == set(range(11))
    assert diagnose(whole).culprits == diagnose(merge([*hosts[:11]])).culprits


def test_a_digest_without_its_pieces_says_what_is_missing(watch: Watch) -> None:
    own, other = (host(number, 2, 2, 200) for number in (0, 1))
    sent, _ = prepared(other, digest=True, send_sources=False)
    watch.meeting.replies = lambda asked: LeadView(
        (seat(2, 3),), len(watch.meeting.asked), asked, {} if watch.meeting.pieces else {"b-1": sent}
    )
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: own)
    assert [rank.journal is None for rank in whole.ranks] == [False, False, False, True]
    assert any(note.what == "journal" and note.rank == 3 for note in whole.unavailable)


def test_a_member_of_many_sends_a_digest_and_keeps_the_rest(watch: Watch) -> None:
    watch.quiet(31.0)
    for digests in (False, True):
        watch.meeting.view = MemberView("lead", "a", asked=1 + digests, wanted=True, digests=digests)
        watch.together.answer(host(1, 2, 2, 200))
    (whole, none), (small, known) = (
        (data, watch.meeting.known[n]) for n, (_, data) in enumerate(watch.meeting.answers)
    )
    assert (whole[:1] == b"#", none) == (False, None)
    assert small[:1] == b"#"
    assert len(small) < len(whole) / 2
    assert known is not None


def test_a_snapshot_that_is_too_large_goes_as_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.sidecar.meeting.gathering.PART", 1000)
    data, known = prepared(host(1, 2, 2, 200), digest=False, send_sources=False)
    assert data[:1] == b"#"
    assert known is not None


@pytest.mark.parametrize("data", [b"garbage", "it is too large"])
def test_what_cannot_be_read_is_named_and_nobody_blamed(watch: Watch, data: bytes | str) -> None:
    watch.meeting.replies = answering(data)
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: shown(0, 1))
    assert [rank.identity for rank in whole.ranks] == ["probe", "probe", "elsewhere", "elsewhere"]
    (note,) = [note for note in whole.unavailable if note.what == "hosts"]
    assert note.why.startswith("host b (ranks 2 and 3) sent no snapshot that can be read")


def test_what_memory_has_no_room_for_is_not_read(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_memory, "spare_memory", lambda: 1000)
    watch.meeting.replies = answering(packed(shown(2, 3, host="b"), send_sources=True))
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: shown(0, 1))
    (note,) = [note for note in whole.unavailable if note.what == "hosts"]
    assert "too large for this host's memory" in note.why


def test_what_memory_has_no_room_for_is_no_digest_either(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_memory, "spare_memory", lambda: 1000)
    sent, _ = prepared(host(1, 2, 2, 200), digest=True, send_sources=False)
    watch.meeting.replies = answering(sent)
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: host(0, 2, 2, 200))
    assert any("too large for this host's memory" in note.why for note in whole.unavailable if note.what == "hosts")
    assert watch.meeting.asked == [("b-1",)]  # for no pieces


def test_the_digest_of_a_watch_that_does_not_fit_is_not_read(watch: Watch) -> None:
    sent, _ = prepared(host(1, 2, 2, 200), digest=True, send_sources=False)
    fits = seat(2, 3)
    odd = replace(fits, refused="it has rank 7, and there are 4 ranks")
    watch.quiet(31.0)
    watch.meeting.view = LeadView((fits,))
    watch.meeting.replies = lambda asked: LeadView((odd,), len(watch.meeting.asked), asked, {"b-1": sent})
    whole = watch.together.look(lambda: host(0, 2, 2, 200))
    assert not any(rank.process for rank in whole.ranks if rank.rank in (2, 3))
    assert any("does not fit this job" in note.why for note in whole.unavailable)


@pytest.mark.parametrize("minutes", [-7, 7])
def test_a_host_that_sends_a_digest_was_looked_at_at_the_same_moment(watch: Watch, minutes: int) -> None:
    own, other = (replace(host(number, 2, 2, 200), command=("torchrun",)) for number in (0, 1))
    job = digested(withheld(replace(other, taken=own.taken + 60.0 * minutes), send_sources=False))
    made = replace(job, digest=replace(job.digest, issued=()))
    watch.meeting.replies = lambda asked: LeadView(
        (seat(2, 3),),
        len(watch.meeting.asked),
        asked,
        {"b-1": made.pieces(watch.meeting.pieces["b-1"]) if watch.meeting.pieces else b"#" + made.written()},
    )
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: own)
    assert whole.taken == own.taken
    assert not any(note.what in ("hosts", "moment") for note in whole.unavailable)


def test_a_silent_host_is_named_with_the_time(watch: Watch) -> None:
    gone = seat(2, 3, at=watch.now - SILENT_SECONDS - 1)
    watch.meeting.replies = lambda asked: LeadView((gone,), 1, asked)
    watch.quiet(31.0)
    watch.meeting.view = LeadView((gone,))
    whole = watch.together.look(lambda: shown(0, 1))
    notes = [note.why for note in whole.unavailable]
    assert any("host b (ranks 2 and 3) has been silent since " in note for note in notes)
    assert any("what failed is the meeting of the watches" in note for note in notes)
    assert [rank.identity for rank in whole.ranks][2:] == ["elsewhere", "elsewhere"]


def test_a_host_that_does_not_fit_is_named(watch: Watch) -> None:
    odd = Seat(seat(0, name="x").beat, watch.now, "rank 0 runs on this host")
    good = packed(shown(2, 3, host="b"), send_sources=True)
    watch.meeting.replies = lambda asked: LeadView((odd, seat(2, 3)), 1, asked, dict.fromkeys(asked, good))
    watch.quiet(31.0)
    watch.meeting.view = LeadView((odd, seat(2, 3)))
    whole = watch.together.look(lambda: shown(0, 1))
    assert watch.meeting.asked == [("b-1",)]
    assert "the watch on x does not fit this job: rank 0 runs on this host" in [n.why for n in whole.unavailable]


def test_watches_of_this_host_are_not_asked_unless_their_ranks_are_missing(watch: Watch) -> None:
    beside = Seat(Beat("a-2", "a", host_identity(), (2, 3), 4, 1, still=40.0), watch.now)
    watch.meeting.replies = lambda asked: LeadView(
        (beside,), len(watch.meeting.asked), asked, dict.fromkeys(asked, packed(shown(2, 3), send_sources=True))
    )
    watch.quiet(31.0)
    watch.meeting.view = LeadView((beside,))
    assert watch.together.look(lambda: shown(0, 1, 2, 3)).unavailable == ()
    assert watch.meeting.asked == [()]
    watch.together.look(lambda: shown(0, 1))
    assert watch.meeting.asked == [(), (), ("a-2",)]


def test_a_bug_in_joining_does_not_cost_the_own_view(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("hangdoc.sidecar.meeting.wire.joined", fails)
    watch.meeting.replies = answering(b"x")
    watch.quiet(31.0)
    watch.meeting.view = LeadView((seat(2, 3),))
    whole = watch.together.look(lambda: shown(0, 1))
    assert "oops" in whole.unavailable[-1].why


def test_being_alone_is_said_once_for_each_reason(watch: Watch) -> None:
    watch.quiet(31.0)
    for view in (AloneView("no watch came"), AloneView("no watch came"), AloneView("refused", lost=True)):
        watch.meeting.view = view
        watch.together.look(lambda: shown(0, 1))
    assert watch.said == [
        "this report is of ranks 0 and 1 alone: no watch came",
        "this report is of ranks 0 and 1 alone: the meeting of the watches failed (refused)",
    ]


def test_a_member_answers_a_round_once_and_hears_a_verdict_once(watch: Watch) -> None:
    watch.quiet(31.0)
    watch.meeting.view = MemberView("lead", "a", asked=1, wanted=True)
    assert watch.together.asks()
    watch.together.answer(shown(2, 3))
    assert not watch.together.asks()
    assert [number for number, _ in watch.meeting.answers] == [1]
    watch.meeting.verdict = Verdict(1, "hang", "It hangs.", "a")
    assert watch.together.verdict() == watch.meeting.verdict
    assert watch.together.verdict() is None
    watch.meeting.view = MemberView("another lead", "c", asked=1, wanted=True)
    assert not watch.together.asks()  # whoever speaks for the lead may not have it look all the time
    watch.now += 5.0
    assert watch.together.asks()
