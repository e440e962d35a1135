"""What decides whether the call is made that ranks poll for, by the store or by files, where one place makes it."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.call_conditions import conditions_of_call, may_differ, started_under
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.key_names import sets_key_named_at
from hangdoc.diagnosis.source.own_names import own_name_polled
from hangdoc.diagnosis.source.polls import object_of, what_ends_polling
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, last_name, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack


def made_elsewhere(sources: Sources, stack: Stack) -> tuple[Frame, list[Condition]] | None:
    """(the line that makes, or removes, what a process polls for, the conditions around it); None where it may be one
    of several such lines, or nothing decides about it.

    Example: `while store.add(votes, 0) < world: ⏎ sleep(1)`, and `vote()` returns under `if not self.dirty:` before
    its `store.add(votes, 1)` → that line, and the `if`.
    """
    ending = what_ends_polling(sources, stack)
    if ending is None:
        return None
    deciding = [c for c in conditions_of_call(sources, ending.at, stack) if may_differ(sources, ending.at, c)]
    return (ending.at, deciding) if deciding else None


def set_elsewhere(sources: Sources, where: Frame) -> tuple[Frame, list[Condition]] | None:
    """(line, conditions) of the only call under conditions that sets a key of the store in which the line waits for
    one, else of the only call in a loop; None where there is no such call, or several. Of a store that nothing is set
    in under that name, those calls count that give such a key the same text.

    Examples: `self.store.get(plan)`, and `announce()` returns under `if self.load > limit:` before its
    `self.store.set(plan, text)` → that line, and the `if`; `for r in pool.usable(): ⏎ store.set(name, r)`
    → the second line, and the loop.
    """
    tree = sources.function(where.file, where.line)
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and holds(n, where.line)] if tree is not None else []
    stores = {object_of(call) for call in calls if last_name(call.func) in names("waits_for_key")} - {""}
    found: dict[Frame, list[Condition]] = {}
    filling = list(sources.user_calls(*names("fills_store"))) if stores else []
    own = [each for each in filling if object_of(each.call) in stores]
    for each in own or [each for each in filling if sets_key_named_at(sources, where, each.call)]:
        at = each.at
        if at not in found:
            around = conditions_of_call(sources, at, (where,)) or started_under(sources, at, (where,))
            deciding = [c for c in around if may_differ(sources, at, c)]
            found.update({at: deciding} if deciding else {})
    return next(iter(found.items())) if len(found) == 1 else None


def named_by_itself(case: Case, ranks: tuple[int, ...]) -> Condition | None:
    """What makes the path that these ranks poll for each process's own, where all others have left that line behind, so
    that theirs was there; None where the source shows none.

    Example: `stamp = time.strftime("%H%M%S")` of `self.done = root / stamp / "DONE"`.
    """
    first = case.activities[ranks[0]]
    others = [rank for rank in case.activities if rank not in ranks]
    own = own_name_polled(case.sources, first.where) if first.where is not None and not case.hidden else None
    if own is None or not others:
        return None
    past = [is_past(case.sources, case.activities[rank].stack, first.stack) for rank in others]
    return Condition(own.text, own.at.file, own.line) if all(each == "certainly" for each in past) else None


_TAKES_LOCK = ("takes_file_lock", "creates_new")


def tries_to_lock(program: Program, activity: Activity) -> bool:
    """True if the function that sleeps tries to make something that must not be there yet, or to lock it; or one that
    decides whether it sleeps.

    Example: `while not self._create(): time.sleep(1)`, and _create() has `os.open(path, os.O_CREAT | os.O_EXCL)`.
    """
    where = next(iter(user_stack(activity.stack)), None)
    function = program.function(where.file, where.line) if where is not None else None
    if where is None or function is None:
        return False
    asked = {name for test, _ in function.passed(where.line) for name in program.places.calls_at(test.file, test.line)}
    bodies = [program.function(*place) for name in asked for place in program.places.bodies_of(name)]
    words = {word for entry in _TAKES_LOCK for word in names(entry)}
    places = [place for word in words for place in program.places.naming(word)]
    return any(
        file == each.file and each.line <= line <= each.end_line
        for each in (function, *bodies)
        if each is not None
        for file, line in places
    )
