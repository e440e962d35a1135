"""What a late rank says after others have been shown to say the same: one line instead of many.

Ranks start seconds apart, and no line waits that long. So the banner of the first is shown, and of the others, when
they say all of it at once: '[1-3] (the same 7 lines as [0] above, to: Please read and cite:)'. Pure, and holds nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from hangdoc.sidecar.logs.folding import Said

LEAST = 3
"""Lines below which there is nothing to be gained."""
MOST_REMEMBERED = 300
"""Lines that were shown last: further up, nobody looks for 'above'. Judgement."""
_MOST_LOOKED_AT = 16
"""Lines with the same text that are looked at: a rank that says one thing all the time is alone with it."""


@dataclass(frozen=True, slots=True)
class Echo:
    """``ranks`` have said ``lines``, as ``of`` before, who said nothing else in between."""

    ranks: tuple[int, ...]
    of: tuple[int, ...]
    lines: tuple[Said, ...]


class Echoes:
    """Remembers what was shown last."""

    def __init__(self) -> None:
        self._shown: deque[tuple[int, Said]] = deque()
        """With their numbers, which count up."""
        self._by_key: dict[str, deque[tuple[int, Said]]] = {}
        """Of those, the ones that may be repeated."""
        self._count = 0
        self._reached: dict[int, int] = {}
        """Rank → the number of the last line that it has said with others, or repeated: it repeats none before."""

    def collapse(self, batch: Iterable[Said]) -> Iterator[Said | Echo]:
        """The lines that were heard at once, with runs of at least three that repeat others' as one."""
        run: list[tuple[int, Said, Said]] = []
        """The number and the line that was shown, and the line that repeats it."""
        for said in batch:
            found = self._repeated(said, run)
            if found is None and run:
                yield from self._ended(run)
                run = []
                found = self._repeated(said, run)
            if found is None:
                yield self._remember(said)
            else:
                run.append((*found, said))
        yield from self._ended(run)

    def _repeated(self, said: Said, run: list[tuple[int, Said, Said]]) -> tuple[int, Said] | None:
        """The line that ``said`` repeats: of a run, the next one of the ranks that it repeats; else the first."""
        if said.error or not said.ranks or (run and run[-1][2].ranks != said.ranks):
            return None
        if run:
            last, first = run[-1][0], run[0][1]
            shown = next((each for each in self._shown if each[0] > last and each[1].ranks == first.ranks), None)
            return shown if shown is not None and shown[1].key == said.key and not shown[1].error else None
        after = max(self._reached.get(rank, -1) for rank in said.ranks)
        same = islice(self._by_key.get(said.key, ()), _MOST_LOOKED_AT)
        return next((each for each in same if each[0] > after and not set(each[1].ranks) & set(said.ranks)), None)

    def _ended(self, run: list[tuple[int, Said, Said]]) -> Iterator[Said | Echo]:
        if not run:
            return
        lines = tuple(said for _, _, said in run)
        found: list[Said | Echo]
        found = [*map(self._remember, lines)] if len(run) < LEAST else [Echo(lines[0].ranks, run[0][1].ranks, lines)]
        for number, _, said in run[-1:]:
            self._reached.update(dict.fromkeys(said.ranks, number))
        yield from found

    def _remember(self, said: Said) -> Said:
        self._shown.append((self._count, said))
        if not said.error:
            self._by_key.setdefault(said.key, deque()).append((self._count, said))
        if len(self._shown) > MOST_REMEMBERED:
            number, forgotten = self._shown.popleft()
            same = self._by_key.get(forgotten.key)
            if same and same[0][0] == number:
                same.popleft()
                if not same:
                    del self._by_key[forgotten.key]
        if len(said.ranks) > 1:
            self._reached.update(dict.fromkeys(said.ranks, self._count))
        self._count += 1
        return said
