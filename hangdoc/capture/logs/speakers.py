"""Who wrote a line in which torch does not say it.

In this order: torch's own rank in other lines of the same label, or of the same file if that is one rank's; the task of
``srun -l`` or of Slurm's ``%t`` in the file's name; torchrun's *local* rank, as the global one only where all labels
are of one host. A file that names two ranks is nobody's.

Example: '48213_5.out' has no ``[rankN]:`` → rank 5. 'attempt_0/3/stderr.log' has '[rank11]:' → rank 11, not 3.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import PurePosixPath

from hangdoc.capture.logs.lines import Line

_VARIABLE = re.compile(r"\b(RANK|SLURM_PROCID|GLOBAL_RANK)[=:] ?[\"']?(\d{1,6})\b")
_TASK_FILE = re.compile(r"(?:^|[_.-])(?:rank|task|r|t)?[_.-]?(\d{1,6})\.(?:out|err|log|txt|json)(?:\.gz)?$")
_ATTEMPT = re.compile(r"attempt_(\d{1,6})/(\d{1,6})/(?:stdout|stderr)\.log$")
_ROLE = re.compile(r"[A-Za-z_][\w.-]*?(\d{1,5})$")


class Speakers:
    """The ranks of all files of a job."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._labels: dict[tuple[str, str], set[int]] = defaultdict(set)
        self._files: dict[str, set[int]] = defaultdict(set)
        self._labelled: dict[str, set[str]] = defaultdict(set)
        self._named: dict[str, set[int]] = defaultdict(set)
        paths: set[str] = set()
        for line in lines:
            paths.add(line.file)
            if line.label:
                self._labelled[line.file].add(line.label)
            if line.rank is not None:
                self._files[line.file].add(line.rank)
                if line.label:
                    self._labels[(line.file, line.label)].add(line.rank)
            elif not line.label and "R" in line.text and (found := _VARIABLE.search(line.text)) is not None:
                self._named[line.file].add(int(found[2]))
        self._by_name = _numbered(paths)
        self.torch_says = any(self._files.values())
        """Some line has ``[rankN]:`` (torch 2.2 and later)."""
        self._one_each = len(self._files) > 1 and all(len(ranks) == 1 for ranks in self._files.values())
        self._beside: dict[str, set[int]] = defaultdict(set)
        """The folder of a process among torchrun's → the ranks that its files name."""
        for path, ranks in self._files.items():
            attempt = _ATTEMPT.search(path)
            if attempt is not None:
                self._beside[path[: attempt.end(2)]] |= ranks
        self._local_is_global = self._one_host()

    def of(self, line: Line) -> int | None:
        """The global rank that wrote the line; None where nothing says it."""
        if line.rank is not None:
            return line.rank
        if line.label:
            known = self._labels.get((line.file, line.label), set())
            if len(known) == 1:
                return next(iter(known))
            if line.label.startswith("task "):
                return int(line.label[5:])
            role = _ROLE.match(line.label)
            return int(role[1]) if role is not None and self._local_is_global and not known else None
        return self.of_file(line.file)

    def of_file(self, path: str) -> int | None:
        """The rank that alone wrote a file; None where it is shared, or nothing says whose it is."""
        said = self._files.get(path, set())
        if len(said) == 1 and len(self._labelled.get(path, ())) <= 1:
            return next(iter(said)) if self._alone(path) else None
        if said:
            return None
        named = self._named.get(path, set())
        if len(named) == 1:
            return next(iter(named))
        attempt = _ATTEMPT.search(path)
        if attempt is not None:
            # Beside it lies the other stream of the same process.
            beside = self._beside.get(path[: attempt.end(2)], set())
            if len(beside) == 1:
                return next(iter(beside))
            return int(attempt[2]) if self._local_is_global and not beside else None
        return self._by_name.get(path)

    def ranks(self) -> set[int]:
        """Every global rank that torch's lines name as who speaks."""
        return {rank for ranks in self._files.values() for rank in ranks}

    def _alone(self, path: str) -> bool:
        """True if the file is one of several that each have one rank, or carries a rank's number."""
        return self._one_each or bool(_ATTEMPT.search(path)) or path in self._by_name

    def _one_host(self) -> bool:
        """True if no local rank speaks for a global one with another number."""
        for (_, label), ranks in self._labels.items():
            role = _ROLE.match(label)
            if role is not None and ranks and ranks != {int(role[1])}:
                return False
        for path, ranks in self._files.items():
            attempt = _ATTEMPT.search(path)
            if attempt is not None and len(ranks) == 1 and ranks != {int(attempt[2])}:
                return False
        return True


def _numbered(paths: Iterable[str]) -> dict[str, int]:
    """The rank by the last number of a file's name, where several files of one folder differ in that number alone."""
    series: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for path in paths:
        name = PurePosixPath(path).name
        found = _TASK_FILE.search(name)
        if found is not None:
            shape = re.sub(r"\.gz$", "", name[: found.start(1)] + "#" + name[found.end(1) :])
            series[(str(PurePosixPath(path).parent), shape)][path] = int(found[1])
    fitting = (own for own in series.values() if len(own) > 1 and len(set(own.values())) == len(own))
    return {path: number for own in fitting for path, number in own.items() if max(own.values()) < 4 * len(own) + 8}
