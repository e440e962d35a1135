"""The conditions by which a model's forward() uses some of its parts and not others."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import dotted, has_blocks, names_in, text_of, walk
from hangdoc.model.message import Condition

_ALIKE = ("self.training", "return_dict", "output_attentions", "output_hidden_states")
"""Names of what every rank sets alike."""


def conditions_in_forward(sources: Sources) -> list[Condition]:
    """The user's conditions in a forward() whose arms call different parts of the module; those that only what is alike
    on all ranks decides are left out.

    Example: `if kind == "tag": return self.tag(x)`, and `return self.ner(x)` after it → that `if`.
    """
    found: dict[Condition, None] = {}
    for name in names("module_forward"):
        for file, function in sources.user_functions(name):
            for block in _blocks(function):
                for index, node in enumerate(block):
                    found |= {Condition(text, file, line): None for line, text in _choices(node, block[index + 1 :])}
    return list(found)


def _blocks(function: ast.AST) -> list[list[ast.stmt]]:
    """Every block of statements in the function."""
    fields = (block for node in walk(function) for _, block in ast.iter_fields(node) if isinstance(block, list))
    return [block for block in fields if block and isinstance(block[0], ast.stmt)]


def _choices(node: ast.stmt, rest: list[ast.stmt]) -> list[tuple[int, str]]:
    """(line, text) of the statement's conditions whose arms call different parts of the module. ``rest``: what follows
    the statement in its block; it belongs to the arm that does not return."""
    choices: list[tuple[ast.expr, str, list[list[ast.AST]]]] = []
    if isinstance(node, ast.If):
        leaves = isinstance(node.body[-1], ast.Return | ast.Continue | ast.Break)
        choices.append((node.test, ":", [[*node.body], [*node.orelse, *(rest if leaves else [])]]))
    elif not has_blocks(node):
        inner = (each for each in walk(node) if isinstance(each, ast.IfExp))
        choices += [(each.test, "", [[each.body], [each.orelse]]) for each in inner]
    return [
        (test.lineno, f"if {text_of(test)}{colon}")
        for test, colon, arms in choices
        if _parts_called(arms[0]) != _parts_called(arms[1]) and not _is_alike(test)
    ]


def _parts_called(arm: list[ast.AST]) -> set[str]:
    """'self.asr' of `self.asr(h)` and of `self.heads[kind](h)`, 'layer' of `layer(h)`."""
    called = set()
    for node in (each for root in arm for each in walk(root)):
        if isinstance(node, ast.Call):
            function = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            called.add(dotted(function))
    return called - {""}


def _is_alike(test: ast.expr) -> bool:
    tested = names_in(test)
    return bool(tested) and all(name in _ALIKE or name.isupper() for name in tested)
