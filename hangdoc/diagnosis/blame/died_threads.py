"""Threads that an exception has ended, by their tracebacks in the job's output, and the rank that had started them.

Example: the output has 'Exception in thread client-1:', begun in attend(), and the line with `Thread(target=attend,
args=(sock,))` has run on rank 0 alone → rank 0.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.syntax import last_name
from hangdoc.model.snapshot import Traceback
from hangdoc.model.told_errors import ended_thread


def died_thread(case: Case, rank: int) -> Traceback | None:
    """The traceback that ended a thread which this rank alone has started; None where there is none, or several."""
    found = [each for each in case.job.tracebacks if ended_thread(each.announced) and each.rank in (None, rank)]
    found = [each for each in found if _started_alone(case, rank, each)]
    return found[0] if len(found) == 1 else None


def _started_alone(case: Case, rank: int, died: Traceback) -> bool:
    own = user_stack(died.frames)
    began = plain(own[-1].function).rpartition(".")[2] if own else ""
    lines = [
        each.at
        for each in case.sources.user_calls(*names("starts_work"))
        for word in (*each.call.args, *(keyword.value for keyword in each.call.keywords))
        if began and isinstance(word, ast.Name | ast.Attribute) and last_name(word) == began
    ]
    return {r for at in lines for r in case.table.split(case.seen, at.file, at.line).ran} == {rank}
