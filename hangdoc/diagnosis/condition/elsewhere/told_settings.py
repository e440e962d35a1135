"""What a setting says of the one before it: does it test something, is it a reset, was it agreed on?"""

from __future__ import annotations

import ast
from dataclasses import replace

from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.source.guards import Guard, guards
from hangdoc.diagnosis.source.settings import Place, Setting
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, innermost_loop, last_name, names_in, text_of
from hangdoc.model.message import Condition

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
WORDS = {"filled": "is filled", "counted": "is counted", "ordered": "is put in another order"}


def in_words(setting: Setting, guard: Guard) -> str:
    """'is filled under'; 'depending on' where it is done in the other arm, or past an `if` that returns."""
    if setting.how == "returned":
        return "is decided by"
    what = WORDS.get(setting.how, "is set") if _adds(setting.node) else "is changed"
    return f"{what} under" if guard.taken else f"{what} depending on"


def _adds(node: ast.AST) -> bool:
    """False of what takes something away: `self.left -= 1`, `del self.arms[name]`, `self.free.pop()`."""
    if isinstance(node, ast.Call):
        return last_name(node.func) not in names("takes_items")
    return not isinstance(node, ast.Delete) and (not isinstance(node, ast.AugAssign) or isinstance(node.op, ast.Add))


def asks_for_item(guard: Guard, own: str) -> bool:
    """True if it asks whether the container has an item, as where each is put in once: `if key not in self.cache:`."""
    return guard.condition.endswith((f" not in {own}:", f" in {own}:"))


def is_agreed(setting: Setting) -> bool:
    """True if all that is handed on was given to a collective before: `dist.all_reduce(flag) ⏎ return flag.item()`."""
    asked = names_in(setting.value) if setting.value is not None else ()
    return _agreed_before(setting.at, tuple(name for name in asked if name != "bool"), setting.line)


def is_there(setting: Setting, guard: Guard) -> bool:
    """True for a test of whether there is something to hand on: `if job is None: ⏎ break ⏎ plan_for(job)`."""
    handed = dotted(setting.value) if setting.how == "given" and setting.value is not None else ""
    return bool(handed) and guard.condition in (f"if {handed} is None:", f"if {handed} is not None:")


def by_its_call(sources: Sources, setting: Setting) -> Setting | None:
    """A constant that a method sets under no condition, or what it fills, as set by the only call of that method; None
    where it is another setting, or there are other calls.

    Example: `def forget(self): ⏎ self.shape = None`, and `if stale: ⏎ channel.forget()` → that call.
    """
    function = setting.at.function
    name = getattr(function, "name", "")
    is_flag = isinstance(setting.value, ast.Constant) and setting.how == "set"
    if not (is_flag or setting.how in WORDS) or not name or name.startswith("__"):
        return None
    calls = [each for each in sources.user_calls(name) if each.function is not function]
    if len(calls) != 1 or len(sources.user_definitions(name)) != 1:
        return None
    at = Place(calls[0].file, calls[0].tree, calls[0].function)
    return replace(setting, at=at, node=calls[0].call, target=None)


def gone_over(setting: Setting) -> ast.expr | None:
    """What the innermost loop around it goes over: as often it fills what it fills."""
    loop = innermost_loop(setting.at.function, setting.line)
    return loop.iter if isinstance(loop, ast.For) else None


def tells_the_place(name: str) -> bool:
    """True for the name of a rank, of a count of ranks, or of a constant."""
    return is_rank_name(name) or name.isupper() or pattern("count_of_ranks").search(name) is not None


def agreed_on(at: Place, guard: Guard) -> bool:
    """True if all that it tests was given to a collective before: `dist.all_reduce(flag) ⏎ if flag.item():`."""
    return _agreed_before(at, guard.names, guard.line)


def _agreed_before(at: Place, asked: tuple[str, ...], line: int) -> bool:
    given = {
        dotted(each)
        for node in ast.walk(at.function)
        if isinstance(node, ast.Call) and node.lineno < line and last_name(node.func) in names("agrees")
        for each in node.args[:1]
    }
    tested = [name.removesuffix(".item").removesuffix(".any").removesuffix(".all") for name in asked]
    return bool(tested) and all(name in given for name in tested)


def place_of_setting(setting: Setting) -> tuple[str, int, int]:
    """(file, line, column)."""
    return setting.at.file, setting.line, setting.node.col_offset


def resets(setting: Setting) -> bool:
    """True for `self.bad = 0` and `rows.clear()`."""
    if isinstance(setting.node, ast.Call):
        return last_name(setting.node.func) == "clear"
    return isinstance(setting.value, ast.Constant)


def condition_of(at: Place, guard: Guard) -> tuple[Condition, ast.expr | None]:
    """The guard as it is told, and what it tests: of a `case` what the `match` asks."""
    for node in ast.walk(at.tree):
        if isinstance(node, ast.If | ast.While) and node.lineno == guard.line:
            return Condition(guard.condition, at.file, guard.line), node.test
        if isinstance(node, ast.Match) and any(case.pattern.lineno == guard.line for case in node.cases):
            return Condition(f"match {text_of(node.subject)}:", at.file, node.lineno), node.subject
    return Condition(guard.condition, at.file, guard.line), None


def common_guards(found: list[Setting]) -> set[tuple[tuple[int, str], bool]]:
    """The guards that all settings of the function are under, in one arm: none of them chooses between these."""
    around = [{(g.place, g.taken) for g in guards(each.at.tree, each.line)} for each in found]
    return set.intersection(*around) if len(around) > 1 else set()


def is_plain(value: ast.expr | None) -> bool:
    """True for a name or an attribute."""
    return isinstance(value, ast.Name | ast.Attribute)


def tells(setting: Setting) -> bool:
    """True if what it sets is a test, that may differ between the ranks, and not only of whether it was ever set."""
    value, own = setting.value, dotted(setting.target) if setting.target is not None else ""
    if value is None or not _tests(value) or names_alike(text_of(value), names_in(value)):
        return False
    return not (isinstance(value, ast.IfExp) and own in names_in(value.test))


def _tests(value: ast.expr) -> bool:
    """True for an expression that tests something, or asks for a file or the environment."""
    if isinstance(value, COMPREHENSIONS):
        return any(each.ifs for each in value.generators)
    if isinstance(value, ast.Dict | ast.List | ast.Set | ast.Tuple | ast.Lambda):
        return False
    parts = list(ast.walk(value))
    tests = any(isinstance(each, ast.Compare | ast.BoolOp | ast.Not | ast.IfExp) for each in parts)
    chosen = any(isinstance(each, COMPREHENSIONS) and any(g.ifs for g in each.generators) for each in parts)
    asks = (dotted(each) for each in parts if isinstance(each, ast.Attribute | ast.Name))
    return tests or chosen or any(pattern("asks_outside").search(each) for each in asks)


def names_alike(condition: str, tested: tuple[str, ...], *, counted: bool = False) -> bool:
    """True for a condition that is the same on all ranks by its words: settings of the job, and counts of rounds."""
    if pattern("same_everywhere").search(condition):
        return True
    return (bool(tested) or counted) and all(
        name.rpartition(".")[2].isupper()
        or pattern("job_setting").search(name)
        or pattern("counts_rounds").search(name)
        for name in tested
    )
