"""Statements by what stands in them: who calls by a name, who names the same thing, who raises, who is entered from
outside."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator

from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.callers import callers
from hangdoc.diagnosis.program.items import Definition
from hangdoc.diagnosis.program.lookup import Lookup
from hangdoc.diagnosis.program.pieces import last_name, walk
from hangdoc.model.process import Frame

Place = tuple[str, int]
"""File and line."""


class Places:
    """Of one program; all but ``calls_at`` are of the user's files alone."""

    def __init__(self, lookup: Lookup, files: Iterable[str]) -> None:
        self._lookup = lookup
        self._files = [file for file in files if not is_library(Frame(file, 0, ""))]

    def calls_at(self, file: str, line: int) -> tuple[str, ...]:
        """The last names of what the statement at the line calls: 'get' of `self.jobs.get()`."""
        return tuple(dict.fromkeys(last_name(call.func) for _, call in self._calls_at(file, line)))

    def called_objects_at(self, file: str, line: int, methods: Collection[str] = ()) -> tuple[str, ...]:
        """The last names of the objects whose methods are called there, and of the contexts that are entered: 'jobs' of
        `self.jobs.get()`, 'guard' of `with self.guard:`. ``methods``: only of calls of these."""
        functions = [call.func for _, call in self._calls_at(file, line)]
        methods_of = [each for each in functions if isinstance(each, ast.Attribute)]
        found = [last_name(each.value) for each in methods_of if not methods or each.attr in methods]
        body = self._lookup.index.at(file, line)
        for node in body.nodes_at(line) if body is not None else ():
            syntax = body.graph.syntax[node] if body is not None else None
            items = syntax.items if isinstance(syntax, ast.With | ast.AsyncWith) else [syntax]
            found += [last_name(each.context_expr) for each in items if isinstance(each, ast.withitem)]
        return tuple(name for name in dict.fromkeys(found) if name not in ("", "self", "cls", "dist"))

    def variables_of(self, item: Definition) -> tuple[str, ...]:
        """The variables of the environment that the definition reads: 'PORT' of `port = int(os.environ["PORT"])`."""
        body = self._lookup.index.at(item.file, item.line)
        nodes = body.nodes_at(item.line) if body is not None else ()
        writes = (write for node in nodes for write in (body.reaching.writes[node] if body is not None else ()))
        values = (write.value for write in writes if write.key == item.name and write.value is not None)
        return tuple(dict.fromkeys(name for value in values for each in walk(value) if (name := _variable(each))))

    def modules(self, file: str) -> Iterator[str]:
        """What the file calls the modules that it imports."""
        for body in self._lookup.index.modules(file):
            for each in body.graph.syntax:
                for alias in each.names if isinstance(each, ast.Import) else ():
                    yield alias.asname or alias.name.partition(".")[0]

    def calling(self, names: Iterable[str]) -> list[Place]:
        """The statements that call one of these last names."""
        found: dict[Place, None] = {}
        for name in names:
            for body, node in self._lookup.index.places(name):
                if body.file in self._files and any(last_name(c.func) == name for c in body.calls_at(node)):
                    found[body.file, body.line_of(node)] = None
        return list(found)

    def naming(self, word: str) -> list[Place]:
        """The statements in which the identifier stands."""
        places = self._lookup.index.places(word)
        return list(dict.fromkeys((body.file, body.line_of(node)) for body, node in places if body.file in self._files))

    def raising(self) -> list[Place]:
        """The `raise` statements."""
        return [(body.file, body.line_of(node)) for body in self._bodies() for node in body.raises]

    def contexts(self, file: str, line: int) -> list[int]:
        """The lines of the `with` statements around a line, in its function."""
        body = self._lookup.index.at(file, line)
        found = {
            syntax.lineno
            for syntax in (body.graph.syntax if body is not None else ())
            if isinstance(syntax, ast.With | ast.AsyncWith) and syntax.lineno < line <= (syntax.end_lineno or 0)
        }
        return sorted(found, reverse=True)

    def leading_to(self, file: str, line: int) -> list[Place]:
        """The statements that call the function around a line, or hand it on to be called."""
        body = self._lookup.index.at(file, line)
        if body is None or body.definition is None:
            return []
        found = (site for site in callers(self._lookup, body) if site.function.file in self._files)
        return list(dict.fromkeys((site.function.file, site.function.line_of(site.node)) for site in found))

    def bodies_of(self, name: str) -> list[Place]:
        """The first lines of the bodies of the functions of that name."""
        found = self._lookup.index.functions_named(name)
        return [(body.file, body.body_line) for body in found if body.file in self._files]

    def entered_from_outside(self) -> list[Place]:
        """The first lines of the bodies of functions which nobody in the program calls, so that a library does."""
        return [
            (body.file, body.body_line)
            for body in self._bodies()
            if body.definition is not None and next(callers(self._lookup, body), None) is None
        ]

    def _bodies(self) -> Iterator[Body]:
        seen: set[tuple[str, str, int]] = set()
        for file in self._files:
            for body in self._lookup.index.bodies(file):
                key = body.file, body.name, body.line
                if key not in seen:
                    seen.add(key)
                    yield body

    def _calls_at(self, file: str, line: int) -> list[tuple[Body, ast.Call]]:
        body = self._lookup.index.at(file, line)
        if body is None:
            return []
        return [(body, call) for node in body.nodes_at(line) for call in body.calls_at(node)]


def _variable(node: ast.AST) -> str:
    """'PORT' of `os.environ["PORT"]`, `environ.get("PORT")` and `os.getenv("PORT")`; '' of anything else."""
    key: ast.AST | None = None
    if isinstance(node, ast.Subscript) and last_name(node.value) == "environ":
        key = node.slice
    elif isinstance(node, ast.Call) and node.args:
        owner = last_name(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        key = node.args[0] if owner == "environ" or last_name(node.func) == "getenv" else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
