"""HD305: a rank waits for an item of a queue in the store, of which there are fewer than are taken out."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, loops_of_call
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.syntax import holds, last_name, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.store_keys import free_ranks
from hangdoc.model.message import Does, Joined, Message, sentence
from hangdoc.model.process import Frame

_MOST_PUSHES = 2
"""Lines that put items into a queue, of which is told what decides how many; chosen by hand."""


@cause("HD305", explains=OutsideWait, order=375)
def queue_of_store(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD305 of a queue in the store: each item is for the first rank that comes."""
    waiting = tuple(r for r in blame.culprits if waits_for_a_key(case.activities[r]))
    first = case.activities[waiting[0]] if waiting else None
    if first is None or not _pops(case, first.where):
        return None
    free = free_ranks(case.activities)
    nobody: Message = "each item is for one rank, and no rank is on its way to put another one into it"
    if free:
        nobody = [Does(free, "waits", "wait"), " for no rank, and may yet fill it"]
    return Finding(
        "HD305",
        sentence(
            [
                [Does(waiting, "waits", "wait"), " for an item of a queue in the store: ", first.text],
                [" at ", place(first.where)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        Joined([nobody, *_pushed(case, first.stack)]),
        "put an end mark of its own into the queue for every rank that takes items out of it, and give the wait a "
        "timeout",
    )


def _pops(case: Case, where: Frame | None) -> bool:
    """True if the line takes an item out of a queue of the store: `task = store.queue_pop("tasks")`."""
    tree = case.sources.function(where.file, where.line) if where is not None else None
    calls = (n for n in walk(tree) if isinstance(n, ast.Call)) if tree is not None else ()
    return any(where is not None and holds(n, where.line) and last_name(n.func) in names("pops_item") for n in calls)


def _pushed(case: Case, stack: tuple[Frame, ...]) -> list[Message]:
    """'how many are put into it at sample.py:27 depends on `for _ in range(self.workers):` (sample.py:26)'; of end
    marks, which come last, first."""
    calls = case.sources.user_calls(*names("pushes_item"))
    pushes = {each.at for each in calls}
    told: list[Message] = []
    for at in sorted(pushes, key=lambda each: (each.file, -each.line)):
        deciding = loops_of_call(case.sources, at, stack) or conditions_of_call(case.sources, at, stack)
        told += [["how many are put into it at ", line_of(at), " depends on ", deciding[-1]]] if deciding else []
    return told[:_MOST_PUSHES]
