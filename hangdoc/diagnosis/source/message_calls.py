"""What a call that passes a message gives for its peer."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names


def peer_given(node: ast.Call, arguments: list[ast.expr]) -> ast.expr | None:
    """The one expression that names the peer: a keyword's, else the second of ``arguments``, those of the call or, of a
    P2POp, those behind its operation; None where there is none, or two are.

    Example: `dist.recv(x, src=peers[0])` → peers[0].
    """
    named = [each.value for each in node.keywords if each.arg in names("peer_local")]
    given = named or arguments[1:2]
    return given[0] if len(given) == 1 else None
