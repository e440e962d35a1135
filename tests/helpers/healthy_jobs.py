"""Healthy jobs under watch that stand still for longer than the threshold, and what is said of them meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from conftest import unless_torch_aborts
from own_launcher import by_hand

from hangdoc import api

if TYPE_CHECKING:
    from conftest import Watch

    from hangdoc.model.diagnosis import Diagnosis

PROGRAMS = Path(__file__).parents[1] / "integration/programs"


def two_of(program: str) -> list[str]:
    """The command that starts two ranks of one of ``PROGRAMS``."""
    return by_hand(f"2:{PROGRAMS / program}")


def stalls(watch: Watch, command: list[str]) -> list[Diagnosis]:
    """What was said of each time that the job stood still, once it has ended well."""
    finished = unless_torch_aborts(lambda: watch(command))
    assert finished.status == 0, finished.explain()
    assert "well ended" in finished.stdout, finished.explain()
    assert "✖" not in finished.stderr, finished.explain()
    assert not finished.survivors
    found = [api.diagnose(path) for path in finished.snapshots()]
    assert {diagnosis.outcome for diagnosis in found} <= {"slow"}, finished.explain()
    return found


def told(diagnosis: Diagnosis) -> tuple[tuple[int, ...], str]:
    return diagnosis.culprits, diagnosis.cause.code if diagnosis.cause else ""


def ends_by_itself(watch: Watch, command: list[str], expected: tuple[tuple[int, ...], str]) -> None:
    """The job ends well, and of its stalls only ``expected`` is said, as (culprits, code)."""
    # On a busy machine the start of the ranks may last long enough for a word of its own, which blames nobody, and the
    # last look at a stall may come when its reason has just passed: then once more.
    for _ in range(3):
        found = {told(diagnosis) for diagnosis in stalls(watch, command)}
        if expected in found:
            break
    assert found - {((), "")} == {expected} - {((), "")}
    assert found
