"""What comes out alike on all ranks by its nature: what is computed from loops, settings and what is written there
alone.

Divergence analysis (Coutinho et al., PACT 2011), over the definitions that reach a test: what none of the sources of
difference goes into (a rank, data, time, chance, a call that is not known) does not diverge. Which of two ranks has
come further does not count: at the same step both go the same way.

Example: `if step % 100 == 0:` in `for step in range(steps)` → even; `if step % 100 == rank:` → not.
"""

from __future__ import annotations

from itertools import islice

from hangdoc.diagnosis.bounds import DEEPEST, TRIED
from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.evaluate import is_expression, names_in

_CALLS = frozenset(
    (
        *("range", "enumerate", "zip", "reversed", "len", "int", "float", "bool", "str", "min", "max", "abs", "round"),
        *("sorted", "sum", "isinstance", "get_world_size", "is_initialized", "is_available"),
    )
)
"""What is called and adds no difference of its own."""
_NAMES = frozenset(("world_size", "world", "__name__", "True", "False", "None"))
_SETTINGS = frozenset(("args", "cfg", "config", "conf", "opts", "options", "settings", "hparams", "params"))
"""What programs call the settings of a job, which its ranks share."""
_MAKERS = frozenset(("__init__", "__post_init__", "__new__", "<module>"))
_NO_VALUE = frozenset(("except", "with", "match"))
"""Kinds of predicates that ask for no value of an expression."""


class Even:
    """Of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[Predicate | Definition, bool] = {}
        self._open: set[Predicate | Definition] = set()
        self._read: dict[Predicate | Definition, dict[str, list[Definition]]] = {}
        self._handed_on: dict[Definition, dict[Definition, None]] = {}
        """Parameter → what its callers hand on, of the slices that were looked at."""

    def is_even(self, item: Predicate | Definition, depth: int = 0) -> bool:
        """True if nothing that differs between ranks is known to go into it, and all that goes into it is known."""
        if item in self._open:
            return True  # of what depends on itself, the rest decides
        if item in self._known:
            return self._known[item]
        self._open.add(item)
        found = depth < DEEPEST and self._is_even(item, depth)
        self._open.discard(item)
        if not (found and self._open):  # else it holds only if what is open does
            self._known[item] = found
        return found

    def _is_even(self, item: Predicate | Definition, depth: int) -> bool:
        if item.kind in _NO_VALUE:
            return False
        if isinstance(item, Definition) and item.kind == "argument":
            return self._all_even([*self._handed_on.get(item, ())], item, depth)
        text = item.subject
        names = [name for name in names_in(text) if not _is_shared(name)]
        if not is_expression(text) or any(name.endswith("()") or _is_of_another(name) for name in names):
            return False
        mine = _own_name(item)
        names = [name for name in names if name != mine]
        if not names:
            return True
        read = self._definitions(item)
        return all(
            self._all_even(read.get(name, []), item, depth) or (_is_setting(name) and name not in read)
            for name in names
        )

    def _all_even(self, definitions: list[Definition], of: Predicate | Definition, depth: int) -> bool:
        return bool(definitions) and all(
            each == of or (self.is_even(each, depth + 1) and self._controls_even(each, depth)) for each in definitions
        )

    def _controls_even(self, each: Definition, depth: int) -> bool:
        function = self._program.function(each.file, each.line)
        controls = function.controls(each.line) if function is not None else []
        return all(self.is_even(predicate, depth + 1) for predicate, _ in controls)

    def is_settled(self, predicate: Predicate) -> bool:
        """True if what it asks is set once, when objects and modules are made: in a process it always goes one way."""
        names = [name for name in names_in(predicate.text) if not _is_shared(name)]
        if predicate.kind in _NO_VALUE or not names or any(name.endswith("()") or "." not in name for name in names):
            return False
        read = self._definitions(predicate)
        made = [each.function.rpartition(".")[2] in _MAKERS for some in read.values() for each in some]
        return bool(made) and all(made)

    def read_by(self, item: Predicate | Definition) -> list[Definition]:
        """What gave the names of an item their values; of a parameter, what its callers hand on."""
        read = [each for some in self._definitions(item).values() for each in some]
        return [one for each in read for one in (self._handed_on.get(each, ()) if each.kind == "argument" else (each,))]

    def _definitions(self, item: Predicate | Definition) -> dict[str, list[Definition]]:
        """Name → what may have given it its value."""
        if item in self._read:
            return self._read[item]
        span = item.span if isinstance(item, Predicate) else None
        found = self._read[item] = dict[str, list[Definition]]()
        for each in islice(self._program.slice_back(item.file, item.line, expression=span), TRIED):
            if not isinstance(each.item, Definition) or each.relation not in ("defines", "calls"):
                continue
            if each.path in ((), (item,)):
                found.setdefault(each.item.name, []).append(each.item)
            elif isinstance(last := each.path[-1], Definition) and last.kind == "argument":
                self._handed_on.setdefault(last, {})[each.item] = None
        return found


def _is_shared(name: str) -> bool:
    parts = name.removesuffix("()").split(".")
    if name.endswith("()"):
        return parts[-1] in _CALLS
    return parts[-1] in _NAMES


def _is_setting(name: str) -> bool:
    return not _SETTINGS.isdisjoint(name.split("."))


def _is_of_another(name: str) -> bool:
    """True for an attribute that others may set by another name: `state.cancelled`."""
    return "." in name.removeprefix("self.") and not _is_setting(name)


def _own_name(item: Predicate | Definition) -> str:
    """Of `step += 1` the step, which it reads as well."""
    return item.name if isinstance(item, Definition) and item.is_assigned and item.kind == "assign" else ""
