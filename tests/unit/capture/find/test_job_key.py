"""One host tells another which job it means."""

from __future__ import annotations

import pytest

from hangdoc.capture.find.job import Job
from hangdoc.capture.find.job_key import choose, format_key, parse_key, variables_of
from hangdoc.capture.find.target import RankTarget
from hangdoc.errors import CannotLook, UsageError


def job(*ranks: int, **variables: str) -> Job:
    environment = {"WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500", **variables}
    targets = tuple(
        RankTarget(rank, 100 + rank, "environment", 4, environment=tuple(sorted(environment.items()))) for rank in ranks
    )
    return Job("torchrun", 99, targets)


def test_a_key_is_one_word_for_every_shell() -> None:
    variables = {"TORCHELASTIC_RUN_ID": "my run; $(reboot) 'x', y=1", "MASTER_PORT": "29500"}
    key = format_key(variables)
    assert not set(key) & set(" ;$()'\"\\&|<>*?[]{}~#!\n")
    assert parse_key(key) == variables


@pytest.mark.parametrize("text", ["", "29500", "RANK=1", "MASTER_PORT=", "MASTER_PORT=1,,", "HOME=/root"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no part of a job's key"):
        parse_key(text)


def test_a_job_is_what_its_ranks_agree_on() -> None:
    assert variables_of(job(0, 1)) == {"WORLD_SIZE": "4", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}
    assert "TORCHELASTIC_RUN_ID" not in variables_of(job(0, TORCHELASTIC_RUN_ID="none"))
    mixed = Job("environment", None, (*job(0).targets, *job(1, MASTER_PORT="1").targets))
    assert "MASTER_PORT" not in variables_of(mixed)


def test_the_job_with_the_key_is_chosen_among_others() -> None:
    mine, other = job(2, 3), job(0, 1, MASTER_PORT="29501")
    assert choose([other, mine], variables_of(job(0, 1))) is mine
    assert choose([mine], {}) is mine


def test_a_job_that_was_told_to_meet_elsewhere_is_found_if_nothing_fits_better() -> None:
    lost = job(2, 3, MASTER_ADDR="nodeO", TORCHELASTIC_RUN_ID="x")
    assert choose([lost, job(0, TORCHELASTIC_RUN_ID="y")], variables_of(job(0, TORCHELASTIC_RUN_ID="x"))) is lost


@pytest.mark.parametrize("jobs", [[], [Job("torchrun", 5, ())], [job(0, WORLD_SIZE="8")]])
def test_no_job_with_the_key(jobs: list[Job]) -> None:
    with pytest.raises(CannotLook, match="no job with WORLD_SIZE=4"):
        choose(jobs, variables_of(job(0)))


def test_of_several_jobs_each_is_named() -> None:
    with pytest.raises(CannotLook) as caught:
        choose([job(0), job(0, MASTER_PORT="29501")], {})
    assert caught.value.what.startswith("2 jobs on ")
    assert "--job WORLD_SIZE=4,MASTER_ADDR=node0,MASTER_PORT=29500 or --job" in caught.value.remedy
