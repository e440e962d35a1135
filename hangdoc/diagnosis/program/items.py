"""What a slice is made of: places, predicates and definitions, and how one was reached."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("if", "while", "for", "and", "or", "ifexp", "comprehension", "match", "except", "assert", "with")
"""Of predicates. 'and' and 'or' are single operands; 'comprehension' is a `for` or `if` in one; 'with' may swallow."""
LOOPS = ("for", "while")
"""Those of statements that go round."""
IN_ROUND = ("round", "True")
"""Outcomes with which they do."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A piece of code. Lines from 1; columns in bytes from the line's start, as everywhere in Python; the end is past.

    Example: `limit` in `if loss > limit:` on line 3 → Span(3, 10, 3, 15).
    """

    line: int
    column: int
    end_line: int
    end_column: int

    def holds(self, other: Span) -> bool:
        """True if the other lies wholly in this one."""
        starts = (self.line, self.column) <= (other.line, other.column)
        return starts and (other.end_line, other.end_column) <= (self.end_line, self.end_column)


@dataclass(frozen=True, slots=True)
class Predicate:
    """Code that decides which way control goes.

    Its outcomes are 'True' and 'False'; 'round' and 'ended' of a `for` and of a comprehension's `for`; 'raised' and
    'ended' of an `except` (the suite it guards raised what it catches, or ran to its end) and of a `with`.
    Example: `if loss > limit:` → kind 'if', text 'loss > limit', the span of that text.
    """

    file: str
    function: str
    """Its qualified name, 'Trainer.step'; '<module>' for a module's body."""
    line: int
    column: int
    end_line: int
    end_column: int
    text: str
    """What is tested, on one line, without the keyword: 'batch in loader' of a `for`, 'KeyError' of an `except`."""
    kind: str
    """One of ``KINDS``."""
    copies: int = 1
    """How often CPython compiles it: the test of a `while` stands at both of its ends, a `finally` on each way in."""

    @property
    def span(self) -> Span:
        """Where it stands."""
        return Span(self.line, self.column, self.end_line, self.end_column)

    @property
    def targets(self) -> tuple[str, ...]:
        """What a loop calls its items, ('i', 'row') of 'i, row in enumerate(rows)'; () of anything else."""
        target, loops, _ = self.text.partition(" in ")
        named = self.kind in ("for", "comprehension") and loops
        return tuple(name.strip(" ()") for name in target.split(",")) if named else ()

    @property
    def subject(self) -> str:
        """What is asked: of a loop what it goes through, 'rows' of 'row in rows'."""
        return self.text.partition(" in ")[2] if self.kind in ("for", "comprehension") else self.text

    @property
    def target(self) -> str:
        """What a loop sets in each round: 'row' of 'row in rows'; '' of others."""
        return self.text.partition(" in ")[0] if self.kind in ("for", "comprehension") else ""

    @property
    def is_negated(self) -> bool:
        """True of `not x`."""
        return self.text.startswith("not ")

    @property
    def asks_for_none(self) -> bool:
        """True of `x is None` and `x is not None`."""
        return self.text.endswith((" is None", " is not None"))


@dataclass(frozen=True, slots=True)
class Definition:
    """Code that gives something a value.

    Example: `self.stale = step > limit` → name 'self.stale', kind 'assign', text 'self.stale = step > limit'.
    """

    file: str
    function: str
    line: int
    column: int
    name: str
    """'limit', 'self.stale', 'cache[]' for what is in a container; '' of a value that has no name."""
    text: str
    kind: str
    """'assign', 'argument' (a parameter), 'filled' (put into a container), 'taken' (out of one), 'returned' (or
    yielded), 'global' (a name of the module that a function sets), 'loop' (the target of one)."""

    @property
    def is_assigned(self) -> bool:
        """True of an assignment with a value."""
        return self.kind in ("assign", "global") and "=" in self.text

    @property
    def subject(self) -> str:
        """What it is computed from: 'a + 1' of `x = a + 1`, 'range(9)' of `for step in range(9)`; else ''."""
        if self.kind == "loop":
            return self.text.partition(" in ")[2].strip()
        return self.text.partition("=")[2].lstrip("=").strip() if self.is_assigned else ""


@dataclass(frozen=True, slots=True)
class Reached:
    """An item of a slice, and how it was come to."""

    item: Predicate | Definition
    outcome: str
    """Of a predicate: the outcome that leads towards the start; '' where either does, and of a definition."""
    distance: float
    """From the start: 1 for what directly decides whether it runs."""
    path: tuple[Predicate | Definition, ...] = ()
    """The items in between, from the start outwards."""
    relation: str = "controls"
    """How it bears on the item before it in the path: 'controls', 'defines', 'calls', 'returns', 'fills'."""
