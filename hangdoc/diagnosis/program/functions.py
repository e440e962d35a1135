"""A function as whoever asks a program sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.items import IN_ROUND, Predicate


@dataclass(frozen=True, slots=True)
class Function:
    """A function, or the body of a class or a module, which run like one.

    Example: of `class Trainer: def step(self): …` → name 'Trainer.step', the lines of the `def`.
    """

    _body: Body

    @property
    def file(self) -> str:
        """Its file."""
        return self._body.file

    @property
    def name(self) -> str:
        """Its qualified name; '<module>' of a module's body."""
        return self._body.name

    @property
    def line(self) -> int:
        """Its `def`, or the first line of the module."""
        return self._body.line

    @property
    def end_line(self) -> int:
        """Its last line."""
        return self._body.end_line

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        """All that decides which way control goes in it, in the order of the text; not those of inner functions."""
        return tuple(sorted(set(self._body.tests.values()), key=_in_text))

    def controls(self, line: int, *, ending: bool = False) -> list[tuple[Predicate, str]]:
        """What the line is directly control-dependent on: (predicate, the outcome with which it runs), the nearest in
        the text first. ``ending``: also the end of loops before it. Example: of `b()` in `if a: b()` → [(a, 'True')].
        """
        controls = self._body.controls_of(self._body.nodes_at(line), ending=ending)
        found = dict.fromkeys((self._body.tests[node], outcome) for node, outcome in controls)
        return sorted(found, key=lambda each: (-each[0].line, -each[0].column))

    def led_to(self, line: int) -> dict[Predicate, str]:
        """All that the line is control-dependent on, directly or not: predicate → outcome. Example: of `c()` in
        `if a: ⏎ if b: c()` → {b: 'True', a: 'True'}."""
        found: dict[Predicate, str] = {}
        lines = [line]
        while lines:
            for predicate, outcome in self.controls(lines.pop()):
                if predicate not in found:
                    found[predicate] = outcome
                    lines.append(predicate.line)
        return found

    def goes_round_by(self, test: Predicate, loop: Predicate) -> bool:
        """True if whether the loop goes round again depends on the test. Example: of `for x in feed: ⏎ if x: break` the
        `if`."""
        return test == loop or any(each == test and each.line >= loop.line for each, _ in self.controls(loop.line))

    def leaves_out_rest(self, test: Predicate, loop: Predicate, line: int) -> bool:
        """True if by the test the line runs, and with it all that follows it in a round of the loop. Example: of
        `if x: continue` before the line."""
        led = self.led_to(line)
        if test not in led or led.get(loop) not in IN_ROUND or loop.line >= test.line:
            return False
        ends = ((each, self.led_to(each)) for each in range(self.end_line, test.line, -1))
        last, after = next((each for each in ends if loop in each[1]), (0, {}))
        return after.get(test) == led[test] and (last > line or led[test] == "False")

    def passed(self, line: int) -> list[tuple[Predicate, str]]:
        """The predicates, each with the outcome that it has had wherever the line runs, the nearest first. Example: of
        `b()` after `if a: return` → [(a, 'False')]."""
        every = [dict.fromkeys(self._body.passed(node)) for node in self._body.nodes_at(line)]
        common = (each for each in every[0] if all(each in other for other in every)) if every else ()
        return [(self._body.tests[node], outcome) for node, outcome in common]

    def comes_by(self, line: int, before: int) -> bool:
        """True if whoever is at the line has come by the other one before, in the same run of the function. Example: of
        `a()` and then `if b: c()`, whoever is at `c()` has come by `a()`."""
        return self._body.comes_by(line, before)

    def leads_to(self, line: int, after: int) -> bool:
        """True if a way leads from the line on to the other one, in one run of the function. Example: of `a()` and then
        `b()` from a() to b(), and from b() to a() only in a loop."""
        return self._body.leads_to(line, after)


def _in_text(each: Predicate) -> tuple[int, int, int, int, str]:
    return each.line, each.column, each.end_line, each.end_column, each.kind
