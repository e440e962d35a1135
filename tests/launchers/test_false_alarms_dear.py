"""More healthy jobs that stand still for longer than the threshold: those that cost the most CPU."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from healthy_jobs import ends_by_itself, stalls, told, two_of

if TYPE_CHECKING:
    from conftest import Watch


@pytest.mark.parametrize(
    ("command", "expected"),
    [(two_of("joins.py"), ((0,), "HD501")), (two_of("compiles.py"), ((), ""))],
    ids=["joins", "compiles"],
)
def test_a_slow_but_healthy_job_ends_by_itself(
    command: list[str], expected: tuple[tuple[int, ...], str], watch: Watch
) -> None:
    ends_by_itself(watch, command, expected)


def test_each_good_reason_to_stand_still_is_named(watch: Watch) -> None:
    found = stalls(watch, two_of("awkward.py"))
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
    found = {told(diagnosis) for diagnosis in stalls(watch, two_of("debugged.py"))}
    assert ((1,), "HD403") in found
    assert found <= {((1,), "HD403"), ((), "")}
