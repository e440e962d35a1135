"""What a lead and its members say to each other, step by step: no network, no thread, and the test's own time."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest

from hangdoc.capture.find.target import RankTarget
from hangdoc.sidecar.meeting import lead
from hangdoc.sidecar.meeting.boards import put_parts
from hangdoc.sidecar.meeting.lead import Lead, LeadView
from hangdoc.sidecar.meeting.member import Member
from hangdoc.sidecar.meeting.records import CALM_SECONDS, Beat, Orders, Verdict, opened, read, sealed, written
from hangdoc.sidecar.meeting.wishes import (
    CALM_OF_MANY_SECONDS,
    MANY_HOSTS,
    MOST_PARTS,
    SILENT_SECONDS,
    Standing,
    Wishes,
)

KEY = bytes(32)


class Desk:
    """A board in memory; ``writes`` counts how often a name was written."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.names: list[str] = []
        self.writes: dict[str, int] = {}

    def put(self, name: str, payload: bytes) -> None:
        self.values[name] = sealed(KEY, name, payload)
        self.writes[name] = self.writes.get(name, 0) + 1

    def get(self, name: str) -> bytes | None:
        return opened(KEY, name, self.values[name]) if name in self.values else None

    def get_all(self, names: Sequence[str]) -> Sequence[bytes | None]:
        found = []
        for name in names:
            try:
                found.append(self.get(name))
            except ValueError:
                found.append(None)
        return found

    def drop(self, name: str) -> None:
        self.values.pop(name, None)

    def enroll(self, member: str) -> None:
        if member not in self.names:
            self.names.append(member)

    def members(self) -> Sequence[str]:
        return self.names

    def close(self) -> None: ...


def standing(*ranks: int, still: float | None = None, world: int = 4, at: float = 0.0) -> Standing:
    targets = [RankTarget(rank, 100 + rank if rank in ranks else None, "probe", world) for rank in range(world)]
    return Standing(tuple(targets), still, at)


class Table:
    """A lead with ranks 0 and 1, and members with the others; every ``step`` lets all of them speak."""

    def __init__(self, *others: tuple[int, ...], world: int = 4) -> None:
        self.desk = Desk()
        self.lead = Lead(self.desk, "lead", "hosta")
        self.wishes = Wishes(standing(0, 1, world=world))
        self.members = [Member(self.desk, f"m{n}", f"host{n}", f"identity {n}") for n in range(len(others))]
        self.wanted = [Wishes(standing(*ranks, world=world)) for ranks in others]
        self.now = 1000.0
        self.silent: set[int] = set()

    def step(self, seconds: float = 1.0) -> LeadView:
        self.now += seconds
        self.lead.step(self.now, self.wishes)
        for number, member in enumerate(self.members):
            if number not in self.silent:
                wanted = self.wanted[number]
                self.wanted[number] = replace(wanted, standing=replace(wanted.standing, at=self.now))
                member.step(self.now, self.wanted[number])
        return self.lead.step(self.now, self.wishes)


VERDICT = Verdict(1, "hang", "Rank 3 alone calls barrier.", "hosta", "/a/stall-1.hangdoc", may_end=True, hosts=2)


def test_a_host_that_works_keeps_the_lead_waiting() -> None:
    table = Table((2, 3))
    (seat,) = table.step().seats
    assert seat.beat.ranks == (2, 3)
    assert seat.works(table.now, 10.0)
    table.wanted[0] = Wishes(standing(2, 3, still=4.0))
    (seat,) = table.step().seats
    assert seat.works(table.now, 10.0)
    assert not seat.works(table.now + 6.0, 10.0)  # it has said nothing else since


def test_a_round_collects_answers_and_gives_the_verdict_back() -> None:
    table = Table((2, 3))
    table.step()
    table.wishes = replace(table.wishes, round=1, asked=("m0",))
    view = table.step()
    assert (view.round, view.asked, dict(view.answers)) == (1, ("m0",), {})
    heard = table.members[0].step(table.now, table.wanted[0])
    assert (heard.asked, heard.wanted, heard.verdict) == (1, True, None)
    table.wanted[0] = replace(table.wanted[0], answer=(1, b"x" * 9_000_000))
    view = table.step()
    assert view.answers == {"m0": b"x" * 9_000_000}
    assert not [name for name in table.desk.values if name.startswith("part/")]  # taken away once read
    table.wishes = replace(table.wishes, verdict=VERDICT)
    assert table.lead.step(table.now, table.wishes).heard == 0
    assert table.members[0].step(table.now, table.wanted[0]).verdict == VERDICT
    assert table.step().heard == 1


def test_pieces_are_asked_for_and_given_without_the_watch() -> None:
    table = Table((2, 3), (4, 5), world=6)
    table.step()
    table.wishes = replace(table.wishes, round=1, asked=("m0", "m1"))
    table.step()
    for number in (0, 1):
        known = f"of m{number}: ".encode().__add__
        table.wanted[number] = replace(
            table.wanted[number],
            answer=(1, b"#digest"),
            known=lambda names, known=known: known(" ".join(names).encode()),
        )
    assert set(table.step().answers) == {"m0", "m1"}
    table.wishes = replace(table.wishes, round=2, asked=("m1",), pieces={"m1": ("one", "two")})
    assert table.step().answers == {"m1": b"of m1: one two"}
    for number, member in enumerate(table.members):
        assert not member.step(table.now, table.wanted[number]).wanted  # nobody is to look once more
    assert not [name for name in table.desk.values if name.startswith(("part/", "want/"))]


def test_pieces_that_are_gone_are_answered_with_nothing() -> None:
    table = Table((2, 3))
    table.step()
    table.wishes = replace(table.wishes, round=1, asked=("m0",), pieces={"m0": ("one",)})
    assert table.step().answers == {"m0": b""}


def test_a_thousand_hosts_hear_small_orders_and_look_at_them_less_often() -> None:
    few, many = Table(*((rank,) for rank in range(2, 4))), Table(*((rank,) for rank in range(2, 602)), world=602)
    for table in (few, many):
        table.step()
        table.wishes = replace(table.wishes, round=1, asked=tuple(f"m{n}" for n in range(len(table.members))))
        table.step()
    (calm, busy) = (table.members[0].step(table.now, table.wanted[0]) for table in (few, many))
    assert (calm.digests, busy.digests) == (False, True)
    assert calm.pause < busy.pause <= 1.0
    assert all(member.step(many.now, many.wanted[n]).wanted for n, member in enumerate(many.members))
    assert len(many.desk.values["lead"]) < 400
    assert len(many.desk.values["asked/1"]) < 10 * 600


def test_a_snapshot_that_is_too_large_is_said_to_be() -> None:
    table = Table((2, 3))
    table.step()
    table.wishes = replace(table.wishes, round=1, asked=("m0",))
    table.wanted[0] = replace(table.wanted[0], answer=(1, bytes(40 << 20)))
    table.step()
    assert table.step().answers == {"m0": "it is too large"}


def test_who_says_nothing_new_is_silent_and_who_left_is_not() -> None:
    table = Table((1,), (2,), world=3)
    table.wishes = Wishes(standing(0, world=3))
    table.step()
    table.silent = {1}
    table.wanted[0] = replace(table.wanted[0], end=b"")
    table.step()
    for _ in range(int(SILENT_SECONDS) + 1):
        view = table.step()
    left, silent = view.seats
    assert (left.beat.left, left.silent(table.now)) == (True, False)
    assert (silent.beat.left, silent.silent(table.now)) == (False, True)


def test_a_calm_member_speaks_rarely_and_a_change_at_once() -> None:
    table = Table((2, 3))
    for _ in range(20):
        table.step()
    assert table.desk.writes["beat/m0"] <= 1 + 20 / CALM_SECONDS
    before = table.desk.writes["beat/m0"]
    table.wanted[0] = Wishes(standing(2, 3, still=3.0))
    table.step()
    assert table.desk.writes["beat/m0"] == before + 1


def many(hosts: int) -> Table:
    return Table(*((rank,) for rank in range(2, 2 + hosts)), world=2 + hosts)


def test_of_many_hosts_each_beats_half_as_often_and_is_silent_later() -> None:
    table = many(MANY_HOSTS + 1)
    for _ in range(2):
        table.step(CALM_SECONDS)
    before = dict(table.desk.writes)
    for _ in range(8):
        view = table.step(CALM_SECONDS)
        assert not any(seat.silent(table.now) for seat in view.seats)
    assert {table.desk.writes[f"beat/m{n}"] - before[f"beat/m{n}"] for n in range(MANY_HOSTS + 1)} == {4}
    table.silent = {7}
    for _ in range(int(2.4 * CALM_OF_MANY_SECONDS + CALM_OF_MANY_SECONDS) + 1):
        view = table.step()
        if any(seat.silent(table.now) for seat in view.seats):
            break
    (gone,) = (seat for seat in view.seats if seat.silent(table.now))
    assert gone.beat.member == "m7"
    assert table.now - gone.heard_at > 2 * CALM_OF_MANY_SECONDS
    table.wanted[3] = Wishes(standing(5, still=3.0, world=MANY_HOSTS + 3))
    said = table.desk.writes["beat/m3"]
    table.step()
    assert table.desk.writes["beat/m3"] == said + 1  # a change is told at once


def test_up_to_many_hosts_all_is_as_ever() -> None:
    table = many(MANY_HOSTS)
    for _ in range(3):
        view = table.step(CALM_SECONDS)
    assert read(Orders, table.desk.get("lead") or b"").calm == CALM_SECONDS
    assert {seat.silent_after for seat in view.seats} == {SILENT_SECONDS}
    assert {table.desk.writes[f"beat/m{n}"] for n in range(MANY_HOSTS)} == {3}


def test_a_lead_of_fewer_hosts_than_before_bears_with_the_calm_ones() -> None:
    table = many(MANY_HOSTS + 1)
    table.step()
    table.wanted[0] = replace(table.wanted[0], end=b"")
    for number in range(1, 50):  # their ranks are others' by now
        table.wanted[number] = Wishes(standing(2 + number, world=99))
    for _ in range(30):
        view = table.step()
    assert len([seat for seat in view.seats if not seat.refused]) <= MANY_HOSTS
    assert {seat.silent_after for seat in view.seats} == {2.4 * CALM_OF_MANY_SECONDS}
    assert not any(seat.silent(table.now) for seat in view.seats)


def test_a_watch_whose_lead_does_not_say_how_calm_it_may_be_beats_as_ever() -> None:
    table = Table((2, 3))
    table.step()
    orders = json.loads(table.desk.get("lead") or b"")
    del orders["calm"]
    table.desk.put("lead", json.dumps({**orders, "number": 100}).encode())
    before = table.desk.writes["beat/m0"]
    for _ in range(4):
        table.now += CALM_SECONDS
        wanted = Wishes(standing(2, 3, at=table.now))
        table.members[0].step(table.now, wanted)
    assert table.desk.writes["beat/m0"] == before + 4


def test_a_watch_that_does_not_know_how_calm_it_may_be_is_not_silent() -> None:
    table = many(MANY_HOSTS + 1)
    table.step()
    table.silent = {0}
    for number in range(100, 110):
        beat = Beat("m0", "host0", "identity 0", (2,), MANY_HOSTS + 3, number)
        table.desk.put("beat/m0", written(beat))  # it beats every five seconds
        assert not table.step(CALM_SECONDS).seats[0].silent(table.now)


def test_a_watch_that_no_longer_looks_says_nothing() -> None:
    desk = Desk()
    Lead(desk, "lead", "hosta").step(0.0, Wishes(standing(0, 1)))
    member = Member(desk, "m", "hostb", "b")
    member.step(100.0, Wishes(standing(2, 3, at=0.0)))
    assert "beat/m" not in desk.values


@pytest.mark.parametrize(
    ("other", "world", "why"),
    [
        ((1, 2), 4, "rank 1 runs on this host"),
        ((2, 3), 8, "a job of 8 ranks, not of 4"),
    ],
)
def test_a_host_that_does_not_fit_is_refused(other: tuple[int, ...], world: int, why: str) -> None:
    table = Table(other)
    table.wanted[0] = Wishes(standing(*other, world=world))
    (seat,) = table.step().seats
    assert why in seat.refused
    assert not table.step().fitting()


def test_a_host_that_does_not_fit_hears_no_verdict() -> None:
    table = Table((2, 3))
    table.wanted[0] = Wishes(standing(2, 3, world=8))
    table.step()
    table.wishes = replace(table.wishes, round=1)
    table.step()
    table.wishes = replace(table.wishes, verdict=VERDICT)
    table.step()
    view = table.members[0].step(table.now, table.wanted[0])
    assert (view.refused, view.verdict) == (True, None)


def test_of_two_hosts_with_one_rank_the_second_is_refused() -> None:
    table = Table((2, 3), (3,))
    first, second = table.step().seats
    assert first.refused == ""
    assert second.refused == "host0 has rank 3 too"


def test_a_node_whose_ranks_another_one_has_by_now_is_forgotten() -> None:
    table = Table((2, 3), ())
    table.step()
    table.silent = {0}
    table.wanted[1] = Wishes(standing(2, 3))
    assert "has rank 2 too" in table.step().seats[1].refused  # the first may still live
    for _ in range(int(SILENT_SECONDS) + 1):
        view = table.step()
    assert [(seat.beat.host, seat.refused) for seat in view.seats] == [("host1", "")]
    table.silent = set()
    table.wanted[0] = Wishes(standing())
    assert [seat.beat.host for seat in table.step().seats] == ["host1", "host0"]  # it speaks again


def test_a_node_that_has_left_an_elastic_job_is_forgotten() -> None:
    table = Table((2, 3))
    table.step()
    table.silent = {0}
    table.wishes = Wishes(standing(0, 1, world=2))
    (seat,) = table.step().seats
    assert "a job of 4 ranks, not of 2" in seat.refused
    for _ in range(int(SILENT_SECONDS) + 1):
        view = table.step()
    assert view.seats == ()


def test_a_silent_node_of_the_job_as_it_is_stays_known() -> None:
    table = Table((2, 3))
    table.step()
    table.silent = {0}
    for _ in range(int(SILENT_SECONDS) + 5):
        view = table.step()
    assert [seat.beat.ranks for seat in view.fitting()] == [(2, 3)]


def test_a_world_that_grew_makes_a_host_fit_without_a_word_of_its_own() -> None:
    table = Table((2, 3))
    table.wishes = Wishes(standing(0, 1, world=2))
    assert not table.step().fitting()
    table.silent = {0}
    table.wishes = Wishes(standing(0, 1))
    assert len(table.step().fitting()) == 1


@pytest.mark.parametrize("forged", [b"", b"{}" * 40, bytes(5000), sealed(bytes(31) + b"x", "beat/m0", b"{}")])
def test_a_forged_beat_is_silence(forged: bytes) -> None:
    table = Table((2, 3))
    table.step()
    table.silent = {0}
    table.desk.values["beat/m0"] = forged
    for _ in range(int(SILENT_SECONDS) + 1):
        view = table.step()
    assert view.seats[0].silent(table.now)


def forged(desk: Desk, member: str, ranks: Sequence[int], number: int = 1, **beat: Any) -> None:
    """Somebody who has the key makes up a watch."""
    desk.enroll(member)
    desk.put(
        f"beat/{member}", json.dumps({**asdict(Beat(member, "x", "x", (), 4, number)), "ranks": ranks, **beat}).encode()
    )


@pytest.mark.parametrize("ranks", [[2] * 20_000, list(range(20_000)), [2, 3], []])
def test_made_up_watches_take_no_more_memory_than_the_jobs_size_explains(ranks: list[int]) -> None:
    table = Table((2, 3))
    table.step()
    for turn in range(10):
        members = [f"forged-{turn}-{number}" for number in range(4)]
        for number, member in enumerate(members):
            forged(table.desk, member, ranks, number=turn + 1, still=float(number))
        view = table.step()
        table.desk.names = ["m0"]
    held = len(pickle.dumps([value for name, value in vars(table.lead).items() if name != "_board"]))
    assert held < 50_000
    assert len(view.seats) <= 4 * 4
    assert sum(len(seat.beat.ranks) for seat in view.seats) <= 4 * 4
    assert [seat.beat.member for seat in view.fitting() if seat.beat.ranks] == ["m0"]


def test_made_up_watches_do_not_silence_one_that_was_there_before() -> None:
    table = Table((2, 3))
    table.step()
    for number in range(100):
        forged(table.desk, f"forged-{number}", [2, 3])
    for _ in range(30):
        view = table.step()
    assert len(view.seats) <= 16
    assert not view.seats[0].silent(table.now)
    table.wanted[0] = Wishes(standing(2, 3, still=4.0))
    assert table.step().seats[0].beat.still is not None


def test_made_up_watches_that_say_no_more_leave_their_seats_to_others() -> None:
    table = Table()
    for number in range(100):
        forged(table.desk, f"forged-{number}", [])
    assert len(table.step().seats) == 16
    for number in range(100):
        table.desk.drop(f"beat/forged-{number}")
    table.desk.names = []
    table.now += SILENT_SECONDS + 1
    table.members = [Member(table.desk, "m0", "host0", "identity 0")]
    table.wanted = [Wishes(standing(2, 3))]
    table.step()
    assert [seat.beat.member for seat in table.step().seats] == ["m0"]


def test_the_snapshots_that_are_held_are_no_more_than_the_jobs_ranks_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead, "PART", 10)
    table = Table((1,), world=2)
    table.wishes = Wishes(standing(0, world=2))
    for number in range(2):
        forged(table.desk, f"forged-{number}", [], world=2, left=True)
        put_parts(table.desk, f"end/forged-{number}", bytes(100), MOST_PARTS)
    assert [len(end) for end in table.step().ends.values()] == [100]  # one of the two: 2 ranks of 8 parts


def test_the_end_of_a_watch_that_does_not_fit_is_not_kept() -> None:
    table = Table((2, 3))
    forged(table.desk, "forged", [0], left=True)
    put_parts(table.desk, "end/forged", b"made up", MOST_PARTS)
    assert table.step().ends == {}


def test_the_end_of_a_node_is_forgotten_with_its_seat() -> None:
    table = Table((2, 3), ())
    table.wanted[0] = replace(table.wanted[0], end=b"how it ended")
    assert table.step().ends == {"m0": b"how it ended"}
    table.wanted[1] = Wishes(standing(2, 3))  # a watch that was started anew
    view = table.step()
    assert (view.ends, [seat.beat.member for seat in view.seats]) == ({}, ["m1"])


def test_a_forged_answer_is_named() -> None:
    table = Table((2, 3))
    table.step()
    table.wishes = replace(table.wishes, round=1, asked=("m0",))
    table.step()
    table.wanted[0] = replace(table.wanted[0], answer=(1, b"its own"))
    table.members[0].step(table.now, table.wanted[0])
    table.desk.values["part/1/m0"] = b"x" * 100
    assert "not sealed" in str(table.lead.step(table.now, table.wishes).answers["m0"])


def test_a_verdict_of_a_round_that_began_without_us_is_not_for_us() -> None:
    table = Table()
    table.wishes = replace(table.wishes, round=1, verdict=VERDICT)
    table.step()
    late = Member(table.desk, "late", "hostc", "c")
    assert late.step(table.now, Wishes(standing(2, 3, at=table.now))).verdict is None


def test_a_verdict_expires() -> None:
    table = Table((2, 3))
    table.step()
    table.wishes = replace(table.wishes, round=1)
    table.step()
    table.wishes = replace(table.wishes, verdict=VERDICT)
    table.lead.step(table.now, table.wishes)
    assert table.members[0].step(table.now + 200.0, table.wanted[0]).verdict is None


def test_a_forged_verdict_ends_the_meeting_for_this_watch() -> None:
    table = Table((2, 3))
    table.step()
    table.wishes = replace(table.wishes, round=1)
    table.step()
    table.wishes = replace(table.wishes, verdict=VERDICT)
    table.lead.step(table.now, table.wishes)
    table.desk.values["verdict/1"] = written(replace(VERDICT, outcome="hang"))
    with pytest.raises(ValueError, match="not sealed"):
        table.members[0].step(table.now, table.wanted[0])


def test_a_silent_lead_is_noticed() -> None:
    table = Table((2, 3))
    table.step()
    wanted = table.wanted[0]
    assert not table.members[0].step(table.now, wanted).silent
    assert table.members[0].step(table.now + SILENT_SECONDS + 1, wanted).silent


def test_what_the_lead_said_earlier_and_somebody_has_put_back_is_not_heard() -> None:
    table = Table((2, 3))
    table.wishes = Wishes(standing(0, 1))
    table.step()
    earlier = []
    for _ in range(2):
        table.step()
        earlier.append(table.desk.values["lead"])
    table.step()
    wanted = table.wanted[0]
    assert not table.members[0].step(table.now, wanted).silent
    # The lead is dead. Its old words are sealed, and are put back one after the other.
    for number in range(4):
        table.desk.values["lead"] = earlier[number % 2]
        view = table.members[0].step(table.now + (number + 1) * SILENT_SECONDS / 2, wanted)
    assert view.silent


def leads_on(table: Table, **said: Any) -> None:
    """Somebody who has the key speaks for the lead."""
    orders = read(Orders, table.desk.get("lead") or b"")
    table.desk.put("lead", written(replace(orders, **said)))


@pytest.mark.parametrize("said", [{"number": 1 << 52}, {"number": 2000}, {"round": 1 << 52}, {"round": 2000}])
def test_who_speaks_for_the_lead_is_not_ahead_of_it_for_ever(said: dict[str, int]) -> None:
    table = Table((2, 3))
    table.step()
    wanted = table.wanted[0]
    number = read(Orders, table.desk.get("lead") or b"").number
    leads_on(table, **{"number": number + 1, **said}, waiting=False, host="forged")
    view = table.members[0].step(table.now, wanted)
    assert (view.host, view.asked, view.wanted) == ("hosta", 0, False)
    table.wishes = replace(table.wishes, round=1, asked=("m0",))
    table.step()
    view = table.members[0].step(table.now, table.wanted[0])  # the lead itself is still heard
    assert (view.host, view.asked, view.wanted, view.silent) == ("hosta", 1, True, False)


def test_a_lead_that_was_not_heard_for_long_is_heard_again() -> None:
    table = Table((2, 3))
    table.step()
    for _ in range(4000):  # the member's host was cut off for an hour
        table.now += 1.0
        table.lead.step(table.now, table.wishes)
    assert not table.members[0].step(table.now, table.wanted[0]).silent
    table.now += 1.0
    number = read(Orders, table.desk.get("lead") or b"").number
    leads_on(table, number=number + 1000)  # its own clock stood still meanwhile, as in a virtual machine
    view = table.members[0].step(table.now, table.wanted[0])
    table.now += 120.0
    assert table.members[0].step(table.now, table.wanted[0]).host == view.host
    assert not table.members[0].step(table.now, table.wanted[0]).silent


def test_what_was_concluded_before_this_meeting_is_not_told_again() -> None:
    desk = Desk()
    wishes = Wishes(standing(0, 1), round=3, asked=("gone",), verdict=replace(VERDICT, round=3))
    view = Lead(desk, "lead", "hosta", since=3).step(0.0, wishes)
    assert view.asked == ()
    assert not [name for name in desk.values if name.startswith("verdict/")]


def test_an_end_is_kept_for_later() -> None:
    table = Table((2, 3))
    table.step()
    table.wanted[0] = replace(table.wanted[0], end=b"how it ended")
    assert table.step().ends == {"m0": b"how it ended"}


def test_of_more_than_there_is_room_for_no_more_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead, "_MOST_BYTES", 100)
    table = Table((2,), (3,))
    table.step()
    table.wishes = replace(table.wishes, round=1, asked=("m0", "m1"))
    table.step()
    table.wanted = [replace(table.wanted[n], answer=(1, bytes(60))) for n in range(2)]
    assert table.step().answers == {"m0": bytes(60), "m1": "the hosts' snapshots are too large together"}
    table.wanted[1] = replace(table.wanted[1], end=bytes(60))
    assert table.step().ends == {}


def test_a_beat_of_another_is_not_believed() -> None:
    table = Table((2, 3))
    table.step()
    table.desk.enroll("m9")
    table.desk.put("beat/m9", written(Beat("m0", "hostx", "x", (2,), 4, 99)))
    assert len(table.step().seats) == 1


def test_orders_say_whether_somebody_works() -> None:
    table = Table((2, 3))
    table.wishes = Wishes(standing(0, 1, still=9.0))
    table.wanted[0] = Wishes(standing(2, 3, still=9.0))
    table.step()
    assert not table.members[0].step(table.now, table.wanted[0]).waiting
    table.wanted[0] = Wishes(standing(2, 3))
    table.step()
    assert table.members[0].step(table.now, table.wanted[0]).waiting
    assert Orders("a", "b", 1).waiting is False
