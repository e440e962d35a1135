"""Which definitions of a local name reach each of its uses: as beniget says, on functions of the standard library."""

import ast
import contextlib
import io
import sysconfig
from pathlib import Path

import pytest

from hangdoc.diagnosis.program.accesses import evaluated, reads
from hangdoc.diagnosis.program.outline import Outline
from hangdoc.diagnosis.program.pieces import parsed

beniget = pytest.importorskip("beniget")
gast = pytest.importorskip("gast")

LIBRARY = Path(sysconfig.get_path("stdlib"))
MODULES = ("textwrap", "shlex", "csv", "fnmatch", "statistics", "bisect", "difflib", "heapq", "calendar", "string")
ALLOWED = {"bisect": 0.6}
"""The share of uses to which beniget lets more definitions come: those of a loop in `if`, in the loop of its `else`."""
LEFT_OUT = (ast.Try, ast.With, ast.Match, ast.Global, ast.Nonlocal, ast.Delete, ast.Lambda, ast.NamedExpr)
"""Beniget lets each definition in a `try` reach all that follows, and has other scopes for some of these."""
NESTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def simple_functions(tree):
    """Functions that hold nothing of what is left out, and no other function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = [each for statement in node.body for each in ast.walk(statement)]
            if not any(isinstance(each, (*LEFT_OUT, *NESTED)) for each in inner):
                yield node


def place(node):
    return node.lineno, node.col_offset


def by_beniget(text):
    """Use → the definitions that reach it, of all names of all functions."""
    chains = beniget.DefUseChains()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        chains.visit(gast.parse(text))
    found = {}
    for definition in chains.chains.values():
        node = definition.node
        if isinstance(node, gast.Name) and not isinstance(node.ctx, gast.Load) and hasattr(node, "lineno"):
            for use in definition.users():
                if isinstance(use.node, gast.Name) and hasattr(use.node, "lineno"):
                    found.setdefault(place(use.node), set()).add(place(node))
    return found


def by_ourselves(text):
    found = {}
    for body in Outline(parsed("a.py", 1, text)).bodies:
        for node, syntax in enumerate(body.graph.syntax):
            for part in evaluated(syntax):
                for read in reads(part, body.graph.bound.get(node, {})):
                    if isinstance(read.node, ast.Name):
                        writes = body.reaching.of(read.key, node).writes
                        found.setdefault(place(read.node), set()).update(place(write.node) for _, write in writes)
    return found


@pytest.mark.parametrize("module", MODULES)
def test_same_definitions(module):
    text = (LIBRARY / f"{module}.py").read_text()
    theirs, ours = by_beniget(text), by_ourselves(text)
    compared, differing = 0, []
    for function in simple_functions(ast.parse(text)):
        local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        local |= {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
        local -= {"self", "cls"}  # of `self.x`, what `self` is says nothing
        for use in (each for statement in function.body for each in ast.walk(statement)):
            if isinstance(use, ast.Name) and isinstance(use.ctx, ast.Load) and use.id in local:
                at = place(use)
                compared += 1
                if ours.get(at) != theirs.get(at):
                    differing.append((use.id, at, ours.get(at), theirs.get(at)))
    assert [each for each in differing if not each[2] <= each[3]] == []
    assert len(differing) <= ALLOWED.get(module, 0) * compared
