"""How ranks, durations and foreign text are written. Used by the diagnosis and by the reports."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional, zero-width), surrogate, private, unassigned, line separators."""


_MOST_RUNS = 12
_FIRST_RUNS = 3


def fold_ranks(ranks: Iterable[int]) -> str:
    """``{0, 1, 2, 3, 5}`` → ``'0-3,5'``; two neighbors stay apart: ``'0,1'``."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def name_ranks(ranks: Iterable[int]) -> str:
    """``'rank 2'``, ``'ranks 0, 1 and 3'``; more than four are folded: ``'ranks 0-5,7'``.

    Of many scattered ones only some are named: ``'45 ranks (3,195,259 … 4035; list in the JSON)'``.
    """
    members = sorted(set(ranks))
    if not members:
        return "no rank"
    if len(members) == 1:
        return f"rank {members[0]}"
    if len(members) > 4:
        folded = fold_ranks(members)
        runs = folded.split(",")
        if len(runs) > _MOST_RUNS:
            return f"{len(members)} ranks ({','.join(runs[:_FIRST_RUNS])} … {runs[-1]}; list in the JSON)"
        return f"ranks {folded}"
    return f"ranks {', '.join(map(str, members[:-1]))} and {members[-1]}"


def name_all(names: Sequence[str], most: int = 4) -> str:
    """'a, b and c'; of more than ``most`` the others are counted: 'a, b, c, d and 3 more'."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    return " and ".join([*filter(None, [", ".join(names[:-1])]), *names[-1:]])


def ordinal(number: int) -> str:
    """'1st', '412th', '1,022nd'."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def name_duration(seconds: float) -> str:
    """``'31 s'``, ``'2 min 5 s'``, ``'1 h 3 min'``; whole seconds, never negative."""
    whole = max(0, round(min(seconds, 1e9)))
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, rest = divmod(whole // 60, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


class FileNames:
    """The shortest names by which the files of one job differ.

    Example, in the working directory /job: '/job/a/train.py', '/job/train.py' and '/job/model.py' are called
    'a/train.py', './train.py' and 'model.py'. No name of a file below the working directory climbs above it.
    ``given`` maps files that have a name already to it: a notebook's cell is called 'In[3]'.
    """

    def __init__(
        self, files: Iterable[str] = (), working_directory: str = "", given: Mapping[str, str] | None = None
    ) -> None:
        self._root = working_directory.rstrip("/") if working_directory.startswith("/") else ""
        self._files = frozenset(file for file in files if _is_path(file))
        self._absolute = {_parts(file) for file in self._files if file.startswith("/")}
        self._by_last: dict[str, set[tuple[str, ...]]] = {}
        for file in self._files:
            place = self._place(file)
            self._by_last.setdefault(place[-1], set()).add(place)
        self._known: dict[str, str] = dict(given or {})

    def short(self, file: str) -> str:
        """As many of the last parts of ``file`` as make it unique; ``file`` itself where it is no path."""
        if file not in self._known:
            self._known[file] = self._shortest(file) if _is_path(file) else file
        return self._known[file]

    def distinguished(self) -> tuple[tuple[str, str], ...]:
        """Path and name of every file whose last part alone does not show which it is, sorted."""
        return tuple((file, name) for file in sorted(self._files) if (name := self.short(file)) != _parts(file)[-1])

    def _shortest(self, file: str) -> str:
        place = self._place(file)
        others = self._by_last.get(place[-1], set()) - {place}
        root = _parts(self._root) if self._root else ()
        below = bool(root) and place[: len(root)] == root
        most = len(place) - len(root) if below else len(place)
        for count in range(1, most + 1):
            if all(other[-count:] != place[-count:] for other in others):
                return str(PurePosixPath(*place[-count:]))
        return f"./{PurePosixPath(*place[-most:])}" if below else str(PurePosixPath(*place))

    def _place(self, file: str) -> tuple[str, ...]:
        """The parts of the absolute path. A job may name its script both 'train.py' and '/job/train.py'."""
        parts = _parts(file)
        if file.startswith("/"):
            return parts
        if self._root:
            return _parts(f"{self._root}/{file}")
        same = [known for known in self._absolute if known[-len(parts) :] == parts]
        return same[0] if len(same) == 1 else parts


def _is_path(file: str) -> bool:
    return not file.startswith("<") and bool(_parts(file))


def _parts(file: str) -> tuple[str, ...]:
    return tuple(part for part in PurePosixPath(posixpath.normpath(file) if file else "").parts if part != ".")


def harmless(text: str) -> str:
    """``text`` on one line with everything invisible escaped: job text may carry terminal sequences or
    characters that reverse the line."""
    return "".join(
        " "
        if character in "\n\t"
        else _escape(character)
        if unicodedata.category(character) in _HIDDEN_CATEGORIES
        else character
        for character in text
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_ASCII = str.maketrans(
    {
        "✖": "x",
        "◔": "~",
        "✔": "ok",
        "·": "-",
        "…": "...",
        "→": "->",
        "–": "-",
        "—": "-",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
        "×": "x",
        "≤": "<=",
        "≥": ">=",
    }
)


def in_ascii(text: str) -> str:
    """``text`` for a terminal that knows nothing else: '->' for '→', an escape for what has no likeness."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def single_spaced(text: str) -> str:
    """'barrier default_pg #2' for the 'barrier  default_pg #2' of a column."""
    return " ".join(text.split())


_STATES = (
    "blocked",
    "held",
    "idle",
    "missing",
    "opening",
    "polling",
    "reading",
    "running",
    "sleeping",
    "stopped",
    "stuck",
    "waiting",
)


def reads_as_state(text: str) -> bool:
    """True if the text follows 'is' without an 'in': 'waiting on a queue' does, 'in rpc_sync()' has one, 'all_reduce'
    does not."""
    return text.startswith((*_STATES, "in "))


def ranks_text(ranks: tuple[int, ...]) -> str:
    """'rank 2', 'ranks 0, 3'."""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
