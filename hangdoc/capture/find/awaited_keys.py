"""Which of the store keys that ranks wait for are there: the store is asked for the list of its keys, no more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hangdoc.capture.find.job_store import job_store
from hangdoc.capture.find.store_client import key_names
from hangdoc.capture.find.target import RankTarget
from hangdoc.model.journal import Journal
from hangdoc.model.snapshot import Unavailable
from hangdoc.model.store import RendezvousStore

_MOST_AWAITED = 256
"""Keys that are looked for. Judgement."""
_MOST_ALIKE = 512
"""Keys like these that a snapshot keeps. Judgement."""


def with_awaited(
    store: RendezvousStore | None, targets: Sequence[RankTarget], journals: Iterable[Journal]
) -> RendezvousStore | Unavailable | None:
    """``store``, or the one that the ranks are connected to, with what is known of the keys that they wait for.

    ``store`` itself where no rank waits for a key, the job has no store that can be read, or another job serves it.
    """
    awaited = list(dict.fromkeys(key for journal in journals for wait in journal.store_waits for key in wait.keys))
    if not awaited or (store is not None and store.foreign is not None):
        return store
    at = job_store(targets)
    if at is None:
        return store
    names = key_names(at.address, at.port)
    if isinstance(names, Unavailable):
        return names
    there, missing = compared(awaited[:_MOST_AWAITED], names)
    return replace(store or RendezvousStore(at.address, at.port), there=there, missing=missing)


def compared(awaited: Collection[str], names: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(the keys that are there, of those awaited and those that differ from one only in the number at the end; the
    awaited keys that are not there).

    A rank waits for a key of its own PrefixStore, whose prefix it does not tell: ``names`` have it. Where keys of one
    name have several prefixes none of them counts. Example: 3/0 and 3/1 are awaited, /shards/3/0 is there → (('3/0',),
    ('3/1',)).
    """
    stems: dict[str, dict[str, set[str]]] = {_split(key)[0]: {} for key in awaited}
    for name in names:
        base, number = _split(name)
        for stem, prefixes in stems.items():
            if base.endswith(stem) and (base == stem or base[: -len(stem) or None].endswith("/")):
                prefixes.setdefault(base, set()).add(number)
    there: dict[str, None] = {}
    for stem, prefixes in stems.items():
        for number in next(iter(prefixes.values())) if len(prefixes) == 1 else ():
            there[stem + number] = None
    missing = [key for key in awaited if not any(_split(key)[1] in known for known in stems[_split(key)[0]].values())]
    return tuple(sorted(there)[:_MOST_ALIKE]), tuple(missing)


def _split(key: str) -> tuple[str, str]:
    """('shards/3/', '12') of shards/3/12."""
    stem = key.rstrip("0123456789")
    return stem, key[len(stem) :]
