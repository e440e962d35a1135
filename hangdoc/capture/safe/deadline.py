"""Run a source beside the others and stop waiting for it at its deadline.

A dead network file system or a process that holds its own memory lock can block a read for ever, and nothing ends a
thread from outside: so these are daemon threads, which never keep the program from ending.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Task(Generic[_T]):
    """A function that runs in a thread of its own from the moment the task is made."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function = function
        self._done = threading.Event()
        self._values: list[_T] = []
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="capture", daemon=True).start()

    def result(self, until: float) -> _T:
        """What the function returned or raised; TimeoutError if it has not by ``until`` (of time.monotonic)."""
        if not self._done.wait(max(0.0, until - time.monotonic())):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._values[0]

    def _run(self) -> None:
        try:
            self._values.append(self._function())
        except BaseException as error:  # passed on to the caller of ``result``
            self._error = error
        finally:
            self._done.set()
