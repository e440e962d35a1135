"""Which sources of a capture gave no answer, and why: the snapshot keeps that beside what was seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from hangdoc.capture.safe.deadline import Task
from hangdoc.model.snapshot import Unavailable

_T = TypeVar("_T")


class NoAnswerError(Exception):
    """A source reported why it has no answer."""

    def __init__(self, answer: Unavailable) -> None:
        super().__init__(answer.why)
        self.answer = answer


class Notes:
    """The notes of one capture, and the tasks' results that they stand in for."""

    def __init__(self) -> None:
        self.missing: list[Unavailable] = []

    def drop(self, what: str, ranks: Collection[int]) -> None:
        """Take back the notes on a source of these ranks, as it has answered in another way."""
        self.missing = [note for note in self.missing if note.what != what or note.rank not in ranks]

    def result(self, task: Task[_T], what: str, until: float, default: _T, rank: int | None = None) -> _T:
        """The task's result; on failure, or ``until`` (monotonic), the default and a note of the rank, or of none where
        it is negative.

        Example: a probe that does not answer in time → None, and a note on 'journal', 'no answer in time'.
        """
        rank = None if rank is None or rank < 0 else rank
        try:
            return task.result(until)
        except NoAnswerError as error:
            self.missing.append(Unavailable(error.answer.what, error.answer.why, error.answer.remedy, rank=rank))
        except TimeoutError:
            self.missing.append(Unavailable(what, "no answer in time", rank=rank))
        except Exception as error:  # a bug in hangdoc must not cost the other sources
            self.missing.append(our_fault(what, error, rank))
        return default


def answered(answer: _T | Unavailable) -> _T:
    """The answer; raises NoAnswerError with the reason where there is none."""
    if isinstance(answer, Unavailable):
        raise NoAnswerError(answer)
    return answer


def our_fault(what: str, error: Exception, rank: int | None = None) -> Unavailable:
    """The note on a source that hangdoc itself failed to read."""
    return Unavailable(what, f"hangdoc failed to read it: {error!r}"[:300], rank=rank)
