"""Who is on its way to set the store key that a rank waits for."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.store_keys import setters
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
STRAIGHT = "def main():\n    run_tool()\n    store.set('done', '1')\n"
IN_THE_SAME_ARM = "def main():\n    if rank == 0:\n        run_tool()\n        store.set('done', '1')\n"
IN_ANOTHER_ARM = "def main():\n    run_tool()\n    if rank == 1:\n        store.set('done', '1')\n"
BEHIND = "def main():\n    store.set('done', '1')\n    run_tool()\n"
IN_ANOTHER_FUNCTION = "run_tool()\ndef later():\n    store.set('done', '1')\n"


def ranks(line: int, kind: ActivityKind) -> dict[int, Activity]:
    """Rank 0 at that line, rank 1 in a wait for a key."""
    at, waits = Frame(FILE, line, "main"), Frame(FILE, 20, "main")
    return {
        0: Activity(0, "node", 1, kind, "", where=at, stack=(at,)),
        1: Activity(1, "node", 2, ActivityKind.STORE_WAIT, "store.wait(done)", where=waits, stack=(waits,)),
    }


@pytest.mark.parametrize(
    ("source", "line", "coming"),
    [
        (STRAIGHT, 2, True),
        (IN_THE_SAME_ARM, 3, True),
        (IN_ANOTHER_ARM, 2, False),
        (BEHIND, 3, False),
        (IN_ANOTHER_FUNCTION, 1, False),
    ],
)
def test_a_line_ahead_that_sets_a_key_is_met(source: str, line: int, coming: bool) -> None:
    sources = Sources((SourceText(FILE, "main", 1, source),))
    found = setters(ranks(line, ActivityKind.WAITING_FOR_CHILD), sources)
    assert found == ({1: (0,)} if coming else {})


def test_a_rank_that_waits_for_others_is_on_its_way_to_nothing() -> None:
    sources = Sources((SourceText(FILE, "main", 1, STRAIGHT),))
    assert setters(ranks(2, ActivityKind.IN_COLLECTIVE), sources) == {}
