"""Jobs that are started without torchrun, for a third of what it costs, where that makes no difference to what is
seen of their ranks."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "by_hand.py"


def by_hand(*jobs: str) -> list[str]:
    """The command that starts them one after the other, each 'NUMBER:script.py' (tests/by_hand.py)."""
    return [sys.executable, str(SCRIPT), *jobs]
