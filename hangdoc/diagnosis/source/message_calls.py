"""What a call that passes a message gives for its peer, and a rooted collective for its root."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.syntax import holds, last_name, names_in, walk


def peer_given(node: ast.Call, arguments: list[ast.expr]) -> ast.expr | None:
    """The one expression that names the peer: a keyword's, else the second of ``arguments``, those of the call or, of a
    P2POp, those behind its operation; None where there is none, or two are.

    Example: `dist.recv(x, src=peers[0])` → peers[0].
    """
    named = [each.value for each in node.keywords if each.arg in names("peer_local")]
    given = named or arguments[1:2]
    return given[0] if len(given) == 1 else None


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
