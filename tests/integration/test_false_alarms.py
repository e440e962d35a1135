"""Jobs that stand still for longer than the threshold and are healthy: no hang may be raised."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from conftest import unless_torch_aborts

from hangdoc import api

if TYPE_CHECKING:
    from conftest import Watch

    from hangdoc.model.diagnosis import Diagnosis

PROGRAMS = Path(__file__).parent / "programs"
BY_HAND = Path(__file__).parents[1] / "by_hand.py"


def by_hand(program: str) -> list[str]:
    """For a third of what torchrun costs, where it makes no difference to what is seen of the ranks."""
    return [sys.executable, str(BY_HAND), f"2:{PROGRAMS / program}"]


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


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (by_hand("saves.py"), ((0,), "HD501")),
        (by_hand("joins.py"), ((0,), "HD501")),
        (by_hand("serves.py"), ((0,), "")),
        (by_hand("compiles.py"), ((), "")),
    ],
    ids=["saves", "joins", "serves", "compiles"],
)
def test_a_slow_but_healthy_job_ends_by_itself(
    command: list[str], expected: tuple[tuple[int, ...], str], watch: Watch
) -> None:
    # On a busy machine the start of the ranks may last long enough for a word of its own, which blames nobody, and the
    # last look at a stall may come when its reason has just passed: then once more.
    for _ in range(3):
        found = {told(diagnosis) for diagnosis in stalls(watch, command)}
        if expected in found:
            break
    assert found - {((), "")} == {expected} - {((), "")}
    assert found


def test_each_good_reason_to_stand_still_is_named(watch: Watch) -> None:
    found = stalls(watch, by_hand("awkward.py"))
    expected = [
        ((1,), {"HD503"}),  # its DataLoader's first batch
        ((), {""}),  # gradients are accumulated: every rank computes
        ((0,), {"HD501"}),  # validates while the other waits
        ((), {""}),  # every rank sleeps between two rounds
        ((1,), {"HD508", "HD501"}),  # an exit hook sleeps, and perhaps has just begun; the other rank has ended
    ]
    assert [diagnosis.culprits for diagnosis in found] == [culprits for culprits, _ in expected]
    assert all(told(diagnosis)[1] in codes for diagnosis, (_, codes) in zip(found, expected, strict=True)), found


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_a_debugger_attached_on_purpose_is_named(watch: Watch) -> None:
    # On a busy machine the start of the ranks may last long enough for a word of its own, which blames nobody.
    found = {told(diagnosis) for diagnosis in stalls(watch, by_hand("debugged.py"))}
    assert ((1,), "HD403") in found
    assert found <= {((1,), "HD403"), ((), "")}
