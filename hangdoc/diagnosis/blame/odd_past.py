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

from hangdoc.diagnosis.blame.odd_by_lines import left_by_one
from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.condition.elsewhere.ran_alone import RanAlone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text

_FEWEST, _MOST_RANKS = 3, 64
"""Of two ranks, either may be the odd one; of very many, each is compared with all others. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class OddPast(Explanation):
    """The culprit alone has been under the conditions of ``left``, and all ranks wait in the call ``at`` now."""

    at: Frame
    left: tuple[RanAlone, ...]


def odd_past(case: Case) -> Blame[OddPast] | None:
    """The blame of the one rank that alone left a function, or a round of a loop, by a way that no other has gone; None
    where several have gone a way of their own. All ranks wait in a collective, and no history is there to read."""
    ranks = tuple(sorted(case.activities))
    if not _FEWEST <= len(ranks) <= _MOST_RANKS:
        return None
    alone = {rank: left for rank in ranks if (left := _ways_of_its_own(case, rank, ranks))}
    own = user_stack(case.activities[next(iter(alone))].stack) if len(alone) == 1 else ()
    if not own:
        return None
    ((rank, left),) = alone.items()
    sure = f"stacks of all ranks seen, their calls not; {ranks_text((rank,))} alone has gone that way"
    return Blame(OddPast(own[0], tuple(left[:NAMED])), (rank,), confidence=Confidence.LIKELY, sure=sure)


def _ways_of_its_own(case: Case, rank: int, ranks: tuple[int, ...]) -> list[RanAlone]:
    """The conditions by which that rank alone has left a function or a round of a loop, and the handlers that it alone
    was in."""
    left = [each for each in left_by_one(case, rank, ranks) if each.leads_out or each.guard.kind == "try"]
    return list({(each.file, each.guard.line): each for each in reversed(left)}.values())[::-1]
