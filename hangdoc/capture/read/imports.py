"""Which files the imports of a program lead to, found as Python would find them, without running anything.

A name is looked for in what the ranks themselves say that they have imported, and then on disk: from the folder of the
file that imports it, from those above it, and from the folders of the programs on the stacks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import PurePosixPath

from hangdoc.capture.read.source_files import Kind
from hangdoc.capture.read.source_pieces import MAX_UP, SourcePieces, imported_names

_MOST_LOOKS = 2000
"""At places on disk, most of which are none: a name of a library is looked for in each root. Judgement."""
_MOST_NAMES = 2000
"""That one file imports."""
_MODULE, _PACKAGE = ".py", "__init__.py"


class Imports:
    """Finds the files; asks for what lies at a path once."""

    def __init__(self, loaded: Collection[str], users: Sequence[str], kind_of: Callable[[str], Kind | None]) -> None:
        """``loaded``: the files of what the ranks have imported. ``users``: those on the stacks. ``kind_of``: what lies
        at a path."""
        self._loaded = dict.fromkeys(loaded, Kind.FILE)
        self._loaded |= {str(folder): Kind.FOLDER for file in loaded for folder in PurePosixPath(file).parents}
        self._on_disk: dict[str, Kind | None] = {}
        self._roots = dict.fromkeys(root for file in users for root in _roots_of(PurePosixPath(file)))
        self._kind_of = kind_of
        self._looks = 0

    def of(self, module: SourcePieces, *, on_disk: bool) -> Iterator[str]:
        """The files that this one imports; ``on_disk``: also those that no rank names."""
        path = PurePosixPath(module.file)
        above = [*path.parents]
        anywhere = list(dict.fromkeys((*_roots_of(path), *self._roots)))
        imported = ((level, name) for level, names in map(imported_names, module.imports) for name in names)
        for level, name in itertools.islice(imported, _MOST_NAMES):
            yield from self._found(above[level - 1 : level] if level else anywhere, name.split("."), on_disk)

    def _found(self, roots: Sequence[PurePosixPath], parts: Sequence[str], on_disk: bool) -> list[str]:
        """What the name leads to in the first root that has it. What a rank has loaded goes before what only lies
        there, and a folder without `__init__.py` comes last."""
        for known, first in ((False, parts[:1]), (on_disk, parts[:1]), (on_disk, parts)):
            for root in roots:
                if self._led_to(root, first, known):
                    return self._led_to(root, parts, on_disk)
        return []

    def _led_to(self, root: PurePosixPath, parts: Sequence[str], on_disk: bool) -> list[str]:
        """What `import a.b` runs below a root: the packages on the way and the module; [] if there is no such `a`.
        Of '' that is what `from . import` runs."""
        place, found = root, []
        for part in parts:
            place /= part
            package, module = str(place / _PACKAGE), str(place) + _MODULE
            if self._kind(str(place), on_disk) is Kind.FOLDER and self._kind(package, on_disk) is Kind.FILE:
                found.append(package)
            elif part and self._kind(module, on_disk) is Kind.FILE:
                return [*found, module]
            elif self._kind(str(place), on_disk) is not Kind.FOLDER:
                break  # the rest of the name is no module's
        return found

    def _kind(self, path: str, on_disk: bool) -> Kind | None:
        if path in self._loaded or not on_disk:
            return self._loaded.get(path)
        if path not in self._on_disk and self._looks < _MOST_LOOKS:
            self._looks += 1
            self._on_disk[path] = self._kind_of(path)
        return self._on_disk.get(path)


def _roots_of(file: PurePosixPath) -> list[PurePosixPath]:
    """Folders in which an absolute import of that file may begin."""
    return [*file.parents][: MAX_UP + 1]
