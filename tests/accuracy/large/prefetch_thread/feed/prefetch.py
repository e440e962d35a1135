"""A thread that makes batches before they are needed."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from feed.batching import Batch

log = logging.getLogger("sorter.prefetch")
_LOOK = 0.2


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong in the thread."""

    error: BaseException


class Prefetcher:
    """An iterator over batches that a thread makes; a context manager, at whose end the thread ends."""

    def __init__(self, source: Iterable[Batch], depth: int, starved_after: float):
        self.source = source
        self.starved_after = starved_after
        self.starved = 0
        self.waited = 0.0
        self.given = 0
        self._queue: queue.Queue[Batch | Failure] = queue.Queue(depth)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True)

    def __enter__(self) -> Prefetcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(5.0)
        if self._thread.is_alive():
            log.warning("the thread takes long to end")

    def _work(self) -> None:
        try:
            for batch in self.source:
                if not self._handed_over(batch):
                    break
        except Exception as error:
            self._handed_over(Failure(error))

    def _handed_over(self, item: Batch | Failure) -> bool:
        """False where nobody wants it any more."""
        while not self._closing.is_set():
            try:
                self._queue.put(item, timeout=_LOOK)
            except queue.Full:
                continue
            return True
        return False

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        began = time.perf_counter()
        item = self._queue.get()
        spent = time.perf_counter() - began
        self.waited += spent
        if spent > self.starved_after and self.given > 0:
            self.starved += 1
        match item:
            case Failure(error):
                raise RuntimeError("the prefetch thread failed") from error
            case _:
                self.given += 1
                return item
