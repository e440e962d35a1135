"""A message that is sent in one process group, and awaited in another."""

from __future__ import annotations

import dataclasses

from cases import case

from hangdoc import api
from hangdoc.model.journal import PointToPoint
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

NAME = "pairs_name_two_groups"


def changed(rank: int, **values: object) -> JobSnapshot:
    """The job, in which the rank's messages with rank 0 have these values."""

    def message(found: PointToPoint) -> PointToPoint:
        return dataclasses.replace(found, **values) if found.peer == 0 else found  # type: ignore[arg-type]

    def of(found: RankSnapshot) -> RankSnapshot:
        journal = found.journal
        if journal is None or found.rank != rank:
            return found
        messages = tuple(map(message, journal.point_to_points))
        return dataclasses.replace(found, journal=dataclasses.replace(journal, point_to_points=messages))

    job = api.load(case(NAME))
    return dataclasses.replace(job, ranks=tuple(map(of, job.ranks)))


def test_both_sides_are_named_with_their_groups() -> None:
    found = api.diagnose(changed(4))
    assert found.culprits == (0, 4)
    assert "Rank 4 sends to rank 0 in group 1" in found.verdict
    assert "in group 2" in found.verdict


def test_a_message_in_the_awaited_group_is_no_mismatch() -> None:
    assert "in group 2" not in api.diagnose(changed(4, group="2")).verdict


def test_a_message_to_another_rank_is_another_story() -> None:
    assert "waits for its message in group" not in api.diagnose(changed(4, peer=1)).verdict


def with_messages(
    rank: int, peer: int, op: str, groups: tuple[str, ...], job: JobSnapshot | None = None
) -> JobSnapshot:
    """The job, in which the rank has passed messages in these groups with the peer, and no others."""

    def of(found: RankSnapshot) -> RankSnapshot:
        journal = found.journal
        if journal is None or found.rank != rank:
            return found
        first = next(message for message in journal.point_to_points if message.peer == peer)
        messages = tuple(dataclasses.replace(first, op=op, group=group) for group in groups)
        rest = tuple(message for message in journal.point_to_points if message.peer != peer)
        return dataclasses.replace(found, journal=dataclasses.replace(journal, point_to_points=rest + messages))

    job = job or api.load(case(NAME))
    return dataclasses.replace(job, ranks=tuple(map(of, job.ranks)))
