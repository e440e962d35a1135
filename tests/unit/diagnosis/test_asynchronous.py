"""A rank that waits for an asynchronous call stands in the user's own line: what can be said of it, and what not."""

from __future__ import annotations

from dataclasses import replace

from cases import case

from hangdoc import api
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


def without_native_frames(job: JobSnapshot) -> JobSnapshot:
    """As on a machine without pystack."""

    def stripped(rank: RankSnapshot) -> RankSnapshot:
        assert rank.process is not None
        looks = tuple(
            replace(look, threads=tuple(replace(thread, native_frames=()) for thread in look.threads))
            for look in rank.process.looks
        )
        return replace(rank, process=replace(rank.process, looks=looks))

    return replace(job, ranks=tuple(stripped(rank) for rank in job.ranks))


def test_native_frames_of_one_rank_tell_of_all_that_wait_there() -> None:
    diagnosis = api.diagnose(case("late_wait_attached"))
    assert [activity.text for activity in diagnosis.ranks if activity.rank != 1] == ["asynchronous collective"] * 2


def test_its_line_is_not_the_line_that_issued_it() -> None:
    """The ranks did not diverge at the loop around the wait."""
    diagnosis = api.diagnose(case("late_wait_attached"))
    assert diagnosis.divergence is not None
    branch = diagnosis.divergence.branch
    assert branch is None or branch.kind != "loop"


def test_without_native_frames_the_source_tells_that_it_is_one() -> None:
    diagnosis = api.diagnose(without_native_frames(api.load(case("late_wait_attached"))))
    assert diagnosis.culprits == (1,)
    assert diagnosis.confidence != "certain"


def test_a_message_without_a_known_peer_blames_nobody_for_sure() -> None:
    job = api.load(case("halo_exchange_attached"))
    diagnosis = api.diagnose(job)
    assert (diagnosis.outcome, diagnosis.confidence) == ("hang", "possible")
    assert (diagnosis.culprits, diagnosis.alternatives[:1]) == ((2,), ((3,),))
    assert api.diagnose(without_native_frames(job)).confidence == "possible"
