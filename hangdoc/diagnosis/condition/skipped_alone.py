"""The conditions by which one rank alone is known to have gone past a message: it has run, or left something behind in,
a suite that no other rank was in, and that skips a line which passes messages.

Example: the counters say that line 46 has run on rank 1 and on no other rank, of

    44  def handle(self, request):
    45      if len(request.prompt) > self.limit:
    46          self.rejected += 1
    47          return
    48      dist.send(self.cache(request), dst=request.decoder)

→ `if len(request.prompt) > self.limit:`. The `except` suite of a `try` whose body passes a message skips it as well,
and so does one that returns, or goes on with the next round, before the line; what the rank alone wrote tells of such a
suite like what it ran.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.bounds import DEEPEST, NAMED
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.condition.elsewhere.set_before import is_of_a_part
from hangdoc.diagnosis.condition.elsewhere.written import written_under
from hangdoc.diagnosis.condition.ways_past import is_settled
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import FUNCTIONS, enclosing_function, holds, last_name, walk
from hangdoc.model.message import Condition


def has_skipped_alone(case: Case, rank: int) -> bool:
    """True if there are such conditions, and no more than say something."""
    others = tuple(sorted(case.seen - {rank}))
    if not others:
        return False
    sides = (rank,), others
    found: set[Condition] = set()
    for each in ran_alone(case, sides):
        guard = each.guard
        if each.side == 0 and _skips_a_message(case, each.file, guard.line, guard.taken):
            found.add(Condition(guard.condition, each.file, guard.line))
    if case.job.written:
        for told in written_under(case.sources, case.job.written, [case.activities[rank].stack], *sides):
            at = told.condition
            if rank in told.ranks and _skips_a_message(case, at.file, at.line, told.taken):
                found.add(at)
    return 0 < sum(not is_of_a_part(case.sources, at) for at in found) <= NAMED


def _skips_a_message(case: Case, file: str, line: int, way: int) -> bool:
    """True if a line of the function that passes a message does not run where the condition at ``line`` went that
    ``way``. Not of one that goes the same way each time."""
    function, calls = _passing(case, file, line)
    tried = _tried_by(function, line)
    if any(holds(statement, call.lineno) for statement in tried for call in calls):
        return True
    around = [guard for call in calls for guard in guards(function, call.lineno) if guard.line == line]
    return any(g.kind in ("if", "return") and g.taken != way and not is_settled(case, g, file) for g in around)


def _passing(case: Case, file: str, line: int) -> tuple[ast.AST, list[ast.Call]]:
    """(the function around the line, the calls in it that pass a message)."""
    tree = case.sources.function(file, line)
    function = enclosing_function(tree, line) if tree is not None else None
    if not isinstance(function, FUNCTIONS):
        return ast.Module([], []), []
    calls = [node for node in walk(function) if isinstance(node, ast.Call)]
    return function, [call for call in calls if _passes(case.sources, call)]


def _tried_by(function: ast.AST, line: int) -> list[ast.stmt]:
    """The body of the `try` whose handler begins at the line."""
    tries = (node for node in walk(function) if isinstance(node, ast.Try))
    return next((node.body for node in tries if any(h.lineno == line for h in node.handlers)), [])


def _passes(sources: Sources, call: ast.Call, deepest: int = DEEPEST) -> bool:
    """True if the call passes, or prepares, a message, or is of the user's only function of that name, which does."""
    name = last_name(call.func)
    if name in _MESSAGES:
        return True
    defined = sources.user_definitions(name) if deepest else []
    return len(defined) == 1 and any(_passes(sources, each, deepest - 1) for each in calls_in(defined[0][1].body))


_MESSAGES = frozenset({*names("sends_message"), *names("receives_message"), *names("prepares_message")})
