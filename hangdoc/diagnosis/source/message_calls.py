"""What a call that passes a message gives for its peer, and a rooted collective for its root."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from hangdoc.diagnosis.bounds import DEEPEST
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, last_name, names_in, text_of, walk


def peer_given(node: ast.Call, arguments: list[ast.expr]) -> ast.expr | None:
    """The one expression that names the peer: a keyword's, else the second of ``arguments``, those of the call or, of a
    P2POp, those behind its operation; None where there is none, or two are.

    Example: `dist.recv(x, src=peers[0])` → peers[0].
    """
    named = [each.value for each in node.keywords if each.arg in names("peer_local")]
    given = named or arguments[1:2]
    return given[0] if len(given) == 1 else None


def peer_of(call: ast.Call) -> ast.expr | None:
    """The same of a call that passes, or prepares, a message; None of any other call."""
    kind, arguments = last_name(call.func), call.args
    if kind in names("prepares_message") and arguments:
        kind, arguments = last_name(arguments[0]), arguments[1:]
    passes = kind in names("sends_message") or kind in names("receives_message")
    return peer_given(call, arguments) if passes else None


def issued_peers(function: ast.AST) -> set[tuple[str, str]]:
    """('isend', 'self.left') of each message that the function passes, or prepares: the call and the peer as it is
    written, '' where none is given."""
    return {(kind, text_of(given)) for kind, _, given in message_calls(function)}


def message_calls(function: ast.AST) -> Iterator[tuple[str, ast.Call, ast.expr | None]]:
    """('isend', the call, what it gives for the peer) of each of these calls."""
    for node in walk(function):
        if not isinstance(node, ast.Call):
            continue
        kind, arguments = last_name(node.func), node.args
        if kind in names("prepares_message") and arguments:
            kind, arguments = last_name(arguments[0]), arguments[1:]
        if kind in names("sends_message") or kind in names("receives_message"):
            yield kind, node, peer_given(node, arguments)


def passes_message(sources: Sources, call: ast.Call, wanted: Collection[str], deepest: int = DEEPEST) -> bool:
    """True if the call is one of ``wanted``, or of the user's only function of that name, which makes one.

    Example: of `self.push(x)` and `def push(self, x): ⏎ dist.send(x, self.right)` → True for 'send'.
    """
    name = last_name(call.func)
    if name in wanted:
        return True
    defined = sources.user_definitions(name) if deepest else []
    inner = calls_in(defined[0][1].body) if len(defined) == 1 else ()
    return any(passes_message(sources, each, wanted, deepest - 1) for each in inner)


def root_of_round(tree: ast.AST, line: int, *, of_items: bool = False) -> bool:
    """True if the root of the call at the line is what counts the rounds of a loop around it, so that ranks with other
    roots are in other rounds; with ``of_items`` also where it is the loop's item, or a part of it.

    Examples: `for src in range(world): ⏎ dist.broadcast(x, src=src)`; `for e in entries: ⏎ … src=e.owner`.
    """
    loops = [node for node in walk(tree) if isinstance(node, ast.For) and holds(node, line)]
    counted = {name for guard in loops_around(tree, line) for name in guard.rounds}
    counted |= {n.id for loop in loops if of_items for n in walk(loop.target) if isinstance(n, ast.Name)}
    calls = (node for node in walk(tree) if isinstance(node, ast.Call) and holds(node, line))
    given = (name.partition(".")[0] for call in calls for name in names_in(peer_given(call, call.args)))
    return not counted.isdisjoint(given)
