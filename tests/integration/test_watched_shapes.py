"""Jobs whose processes do not say by themselves who they are, or that are several, one after the other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from own_launcher import by_hand

from hangdoc import api, scenarios

if TYPE_CHECKING:
    from conftest import Watch

PROGRAMS = Path(__file__).parent / "programs"
THEIRS = Path(__file__).parents[1] / "accuracy" / "programs"


def line_of(program: str, text: str) -> int:
    lines = (PROGRAMS / program).read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize("how", ["process", "spawn"])
def test_a_rank_that_stands_before_its_first_store_is_found_among_its_siblings(
    how: str, watch: Watch, tmp_path: Path, free_port: int
) -> None:
    finished = watch([sys.executable, str(PROGRAMS / "late.py"), how, str(free_port), str(tmp_path / "never")],
                     "--give-up-after", "8")  # fmt: skip
    assert finished.document is not None, finished.explain()
    assert finished.document["outcome"] == "hang"
    assert finished.document["culprits"] == [1], finished.explain()
    assert finished.document["cause"]["code"] == "HD508", finished.explain()
    assert f"late.py:{line_of('late.py', 'time.sleep')}" in finished.document["verdict"], finished.explain()
    assert not finished.survivors


def test_a_job_that_follows_another_is_not_mixed_with_it(watch: Watch) -> None:
    program = PROGRAMS / "shares.py"
    finished = watch(by_hand(f"3:{program}", f"2:{program}"))
    assert finished.status != 0
    assert finished.document is not None, finished.explain()
    assert finished.document["outcome"] == "crashed"
    assert sorted(rank["rank"] for rank in finished.document["ranks"]) == [0, 1], finished.explain()
    assert finished.document["culprits"] == [1], finished.explain()
    assert f"LookupError at shares.py:{line_of('shares.py', 'raise')}" in finished.document["verdict"]


@pytest.mark.parametrize(("program", "ranks"), [("locked_server.py", 2), ("manager_lock.py", 0)])
def test_a_lock_that_is_wanted_behind_a_unix_socket_has_a_holder(program: str, ranks: int, watch: Watch) -> None:
    scenario = scenarios.read(THEIRS / program)
    assert scenario is not None
    script = str(scenario.path)
    finished = watch(by_hand(f"{ranks}:{script}") if ranks else [sys.executable, script])
    assert finished.document is not None, finished.explain()
    wrong = [row.what for row in scenarios.compare(scenario, finished.document) if not row.agrees]
    assert not wrong, finished.explain()
    assert not finished.survivors


@pytest.mark.xfail(strict=True, reason="told by a rule that is gone, and by no general mechanism yet")
def test_the_store_is_asked_which_of_the_keys_is_missing(watch: Watch) -> None:
    finished = watch(by_hand(f"3:{PROGRAMS / 'own_keys.py'}"), "--give-up-after", "8")
    assert finished.document is not None, finished.explain()
    assert finished.document["cause"]["code"] == "HD305", finished.explain()
    assert finished.document["culprits"] == [1], finished.explain()
    assert "Rank 1 has not set 2/1 in the store" in finished.document["verdict"], finished.explain()
    branch = finished.document["divergence"]["branch"]
    assert (branch["line"], branch["condition"]) == (line_of("own_keys.py", "if text is None"), "if text is None:")
    assert not finished.survivors


@pytest.mark.skipif(sys.version_info < (3, 11), reason="CPython 3.11 is the first that counts")
def test_what_has_run_once_is_known_from_the_first_call_on(watch: Watch) -> None:
    finished = watch(by_hand(f"2:{PROGRAMS / 'ran_once.py'}"))
    assert finished.document is not None, finished.explain()
    (saved,) = finished.run_dir.glob("stall-*.hangdoc")
    code = {rank.rank: rank.process.code for rank in api.load(saved).ranks if rank.process is not None}
    line = line_of("ran_once.py", "return len(text)")
    shares = {rank: next(each for each in found if each.function == "share") for rank, found in code.items()}
    assert line in shares[0].idle
    assert line in shares[1].ran
    assert not any(each.since_warm for each in shares.values())
    branch = finished.document["divergence"]["branch"]
    conditions = [branch["condition"], *(answer["condition"] for answer in branch["answers"])]
    assert "if not rows:" in conditions, finished.explain()


@pytest.mark.parametrize("status", [0, 3])
def test_ranks_that_multiprocessing_ends_at_the_drivers_exit_have_crashed_only_if_it_has(
    status: int, watch: Watch, free_port: int
) -> None:
    finished = watch([sys.executable, str(PROGRAMS / "daemons.py"), str(free_port), str(status)])
    assert finished.status == status, finished.explain()
    assert "well ended" in finished.stdout, finished.explain()
    assert (finished.document is not None) == bool(status), finished.explain()
    assert ("✖ crashed" in finished.stderr) == bool(status), finished.explain()
    assert "out-of-memory" not in finished.stderr, finished.explain()
    assert not finished.survivors
