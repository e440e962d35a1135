"""What a library's schedule was given: how often it is to evaluate or save, how many steps or batches it is to run.

Example: the ranks are at different stages of a loop that Lightning runs, and

    58  usable = [clip for clip in clips if clip.decodes]
    59  every = len(usable) // 16
    60  trainer = Trainer(val_check_interval=every, max_steps=200)

→ `val_check_interval=every`, which is 4 on ranks 0 and 1 and 3 on rank 2, and depends on `if clip.decodes`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.condition.elsewhere.decided_back import decided_back
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.settings import Place
from hangdoc.diagnosis.source.syntax import dotted, text_of
from hangdoc.diagnosis.source.values import SideRanks, sides_differ
from hangdoc.model.message import Condition, Joined, Message, Values, joined

_MOST = 2
"""Arguments; of more, it is the ranks' whole set-up that differs. Chosen by hand."""
_ANY = re.compile("")
_NOT_SEEN = "what the schedule was given on each rank was not seen"


@dataclass(frozen=True, slots=True)
class ScheduleGiven:
    """What to say of it; empty where nothing was found."""

    why: Message = ""
    decided_at: Condition | None = None
    doubt: str = ""
    same: Message = ""
    """The arguments whose values were seen to differ: '`val_check_interval`'."""


@dataclass(frozen=True, slots=True)
class _Given:
    """An argument that sets a schedule. ``seen``: its values, where they differ; ``by``: what decides it."""

    word: str
    text: Condition
    seen: dict[int, str]
    by: list[Condition]


def schedule_given(case: Case, blame: Blame[Explanation]) -> ScheduleGiven:
    """The arguments of a schedule whose values were seen to differ; without one, the only one that some condition of
    the user's decides."""
    ranks = blame.culprits, others_of(case, blame)
    found = list(_arguments(case, ranks))
    found = [each for each in found if each.seen] or [each for each in found if each.by]
    if not 0 < len(found) <= _MOST:
        return ScheduleGiven()
    said: list[Message] = []
    for each in found:
        differs: Message = [" differs: ", Values(each.seen)] if each.seen else ""
        depends: Message = [" depends on ", Joined(each.by, " and ")] if each.by else ""
        said.append([each.text, differs, ", and" if differs and depends else "", depends])
    first = found[0]
    return ScheduleGiven(
        joined(Joined(said, ", and ")),
        next(iter(first.by), first.text),
        "" if first.seen and not first.by else _NOT_SEEN,
        Joined([f"`{each.word}`" for each in found], " and ") if first.seen else "",
    )


def _arguments(case: Case, ranks: SideRanks) -> Iterator[_Given]:
    for each in case.sources.user_calls_like(_ANY):
        for word in each.call.keywords:
            if word.arg not in names("sets_schedule") or isinstance(word.value, ast.Constant):
                continue
            at = Place(each.file, each.tree, each.function)
            seen = case.values.of(each.file, getattr(each.function, "name", "<module>"), dotted(word.value))
            by = decided_back(case, ranks, at, word.value)
            text = Condition(f"{word.arg}={text_of(word.value)}", each.file, word.value.lineno)
            yield _Given(word.arg or "", text, seen if sides_differ(seen, ranks) else {}, by)
