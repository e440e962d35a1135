"""Names over all files: who is called so, where a word stands, which file a module is, what a class inherits."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

from hangdoc.diagnosis.bounds import SCANNED
from hangdoc.diagnosis.program.accesses import Write
from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.outline import Outline


class Index:
    """Of one program. Words are looked for in the text first, so that only functions which hold one are read."""

    def __init__(self, outlines: Sequence[Outline]) -> None:
        self._outlines = outlines
        self._places: dict[str, list[tuple[Body, int]]] = {}
        self._by_file: dict[str, list[Outline]] = {}
        for each in outlines:
            self._by_file.setdefault(each.piece.file, []).append(each)

    @cached_property
    def _named(self) -> dict[str, list[Body]]:
        found: dict[str, list[Body]] = {}
        for function in (each for outline in self._outlines for each in outline.bodies):
            found.setdefault(function.short_name, []).append(function)
        return found

    def functions_named(self, name: str) -> list[Body]:
        """Functions and methods of that name, without what they stand in."""
        return [each for each in self._named.get(name, ()) if not each.is_class]

    def classes_named(self, name: str) -> list[Body]:
        """Bodies of the classes of that name."""
        return [each for each in self._named.get(name, ()) if each.is_class]

    def bodies(self, file: str) -> list[Body]:
        """All functions and bodies of a file."""
        return [body for each in self._by_file.get(file, ()) for body in each.bodies]

    def modules(self, file: str) -> list[Body]:
        """The module body of a file; of fragments each one's."""
        return [each.module for each in self._by_file.get(file, ())]

    def at(self, file: str, line: int) -> Body | None:
        """The innermost function, class or module body around a line."""
        return next((found for each in self._by_file.get(file, ()) if (found := each.at(line))), None)

    def places(self, word: str) -> list[tuple[Body, int]]:
        """(function, node) of each statement, or part of one, whose lines hold the identifier."""
        known = self._places.get(word)
        if known is None:
            known = self._places[word] = list(dict.fromkeys(itertools.islice(self._find(word), SCANNED)))
        return known

    def _find(self, word: str) -> Iterator[tuple[Body, int]]:
        for outline in self._outlines:
            for line in outline.lines_with(word):
                function = outline.at(line)
                if function is not None:
                    yield from ((function, node) for node in function.all_at(line))

    def writes(self, word: str) -> Iterator[tuple[Body, int, Write]]:
        """All writes whose key ends with the identifier: 'x', 'self.x', 'self.x[]'."""
        for function, node in self.places(word):
            for write in function.reaching.writes[node]:
                if write.key.removesuffix("[]").rpartition(".")[2] == word:
                    yield function, node, write

    def module_files(self, name: str) -> list[str]:
        """The files that the module of that dotted name may be: 'pkg.data' → '…/pkg/data.py'."""
        ends = f"/{name.strip('.').replace('.', '/')}"
        found = (f"{ends}.py", f"{ends}/__init__.py")
        return [file for file in self._by_file if f"/{file}".endswith(found)]

    def family(self, owner: Body) -> list[Body]:
        """The class, what it inherits, and what inherits from it, as far as names tell."""
        found = {owner: None}
        for related in (self._bases, self._heirs):
            waiting = [owner]
            while waiting:
                for each in related(waiting.pop()):
                    if each not in found:
                        found[each] = None
                        waiting.append(each)
        return list(found)

    def _bases(self, owner: Body) -> list[Body]:
        return [each for name in owner.base_names for each in self.classes_named(name)]

    def _heirs(self, owner: Body) -> list[Body]:
        return self._inheriting.get(owner.short_name, [])

    @cached_property
    def _inheriting(self) -> dict[str, list[Body]]:
        found: dict[str, list[Body]] = {}
        for function in (each for outline in self._outlines for each in outline.bodies):
            for name in function.base_names:
                found.setdefault(name, []).append(function)
        return found

    def methods(self, owner: Body, name: str) -> list[Body]:
        """The methods of that name which an object of the class, or of one that inherits from it, may have."""
        family = self.family(owner)
        return [each for each in self.functions_named(name) if each.outer in family]

    def imported(self, node: ast.AST, name: str) -> list[tuple[str, str]]:
        """(file, name there) of what an import calls ``name``; the name is '' of a module itself."""
        if isinstance(node, ast.ImportFrom):
            for each in node.names:
                if (each.asname or each.name) == name:
                    inside = [(file, each.name) for file in self.module_files(node.module or "")] if node.module else []
                    whole = f"{node.module}.{each.name}" if node.module else each.name
                    return [*inside, *((file, "") for file in self.module_files(whole))]
        if isinstance(node, ast.Import):
            for each in node.names:
                if (each.asname or each.name.partition(".")[0]) == name:
                    return [(file, "") for file in self.module_files(each.name if each.asname else name)]
        return []
