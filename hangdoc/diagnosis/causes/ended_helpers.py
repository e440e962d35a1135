"""What ended the thread or the child that a rank waits for, by its traceback in the job's output, and the condition
that led there.

Example: the output has 'Exception in thread feed:', with the lines load.py:31 pump() and load.py:12 scaled(), and
'TypeError: 'NoneType' object is not subscriptable', of

     8  def scaled(sample):
     9      gain = gain_of(sample)         # returns None past `if "gain" in sample:` (load.py:4)
    12      return sample["x"] * gain["value"]

→ pump() ended at line 12, and gain_of() is decided by the `if` at line 4.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.deciding import subject_of
from hangdoc.diagnosis.causes.phrases import cited, line_of
from hangdoc.diagnosis.causes.wait_chain import child_stacks, state_of
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.ran_alone import decides, is_alike
from hangdoc.diagnosis.condition.elsewhere.set_before import set_by
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import function_name, holds, text_of, walk
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition, Joined, Message
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import Traceback
from hangdoc.model.told_errors import ended_thread

ENDED_BY_OTHERS = frozenset(
    {
        ActivityKind.LOCK,
        ActivityKind.PIPE,
        ActivityKind.IO,
        ActivityKind.SLEEPING,
        ActivityKind.WAITING_FOR_CHILD,
        ActivityKind.WAITING_FOR_WORKER,
        ActivityKind.SHUTTING_DOWN,
    }
)
"""Waits that a thread or a child of the rank may have been to end."""


def ended_helper(case: Case, ranks: tuple[int, ...], *, undecided: bool = False) -> Message:
    """'by the output, pump() ended with TypeError at load.py:12; gain_of() is decided by `if "gain" in sample:`
    (load.py:4)'; '' where no output tells of what the first of the ranks has lost, or nothing decided about it.
    ``undecided``: then the statement is told that raised: 'ended with KeyError at `return self.vocab[word]`'."""
    rank = ranks[0]
    if case.activities[rank].kind not in ENDED_BY_OTHERS:
        return ""
    told = list(_of_rank(case, rank))
    first = {(each.frames[0].file, each.frames[0].line, plain(each.frames[-1].function)) for each in told}
    shared = [each for each in told if each.rank is None]
    if len(first) != 1 or len(shared) > max(len(ranks), _lost_children(case, rank)):
        return ""  # of several, one may be another rank's, or not the one that is waited for
    way = _own_frames(told[-1])
    deciding = _what_decided(case, rank, way)
    began = plain(way[-1].function).rpartition(".")[2]
    error = told[-1].error.partition(":")[0].rpartition(".")[2]
    ended = f"by the output, {began}() ended with {error} at "
    raising = _statement(case.sources, way[0]) if undecided else None
    if not deciding and raising is not None:
        return [ended, raising]
    return [ended, line_of(way[0]), deciding] if deciding else ""


def _statement(sources: Sources, at: Frame) -> Condition | None:
    """The plain statement at the line: what it asked for was not there."""
    tree = sources.function(at.file, at.line)
    plain_ones = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Expr | ast.Assert | ast.Raise
    nodes = (n for n in walk(tree) if isinstance(n, plain_ones)) if tree is not None else iter(())
    found = next((node for node in nodes if holds(node, at.line)), None)
    return Condition(text_of(found), at.file, at.line) if found is not None else None


def _of_rank(case: Case, rank: int) -> Iterator[Traceback]:
    """The tracebacks that may be of a thread or a child of the rank: of what was started, and runs no more there."""
    process = case.ranks[rank].process
    threads = process.last.threads if process is not None and process.last is not None else ()
    stacks = [*(thread.frames for thread in threads), *child_stacks(case, rank)]
    living = {(f.file, plain(f.function).rpartition(".")[2]) for stack in stacks for f in user_stack(stack)}
    named = {thread.name.partition(" (")[0] for thread in threads}
    lost = _lost_children(case, rank) > 0
    for each in case.job.tracebacks:
        own = _own_frames(each)
        if each.rank not in (None, rank) or not own or own[-1].function == "<module>":
            continue
        began = plain(own[-1].function).rpartition(".")[2]
        thread = ended_thread(each.announced)  # of several that run one function, its name says which has ended
        if thread in named if thread else (own[-1].file, began) in living and not (each.announced and lost):
            continue
        if not each.announced:
            continue
        yield each


def _lost_children(case: Case, rank: int) -> int:
    """How many children of the rank have ended: it has not asked for their end yet, or every other rank has more.

    Of several that run one function, some may run it still.
    """
    living = {
        each: [child for child in snapshot.process.children if state_of(child)[0] != ActivityKind.ZOMBIE]
        for each, snapshot in case.ranks.items()
        if snapshot.process is not None
    }
    process = case.ranks[rank].process
    ended = len(process.children) - len(living[rank]) if process is not None else 0
    fewest = min((len(children) for each, children in living.items() if each != rank), default=0)
    return max(ended, fewest - len(living.get(rank, [])))


def _own_frames(told: Traceback) -> tuple[Frame, ...]:
    return tuple(user_stack(told.frames))


def _what_decided(case: Case, rank: int, way: Sequence[Frame]) -> Message:
    """How it is told what led to the exception; '' where the source does not fit the traceback, or nothing decided."""
    tree = case.sources.function(way[0].file, way[0].line)
    if tree is None or function_name(tree, way[0].line) != plain(way[0].function).rpartition(".")[2]:
        return ""
    around = [guard for guard in guards(tree, way[0].line) if decides(guard) and not is_alike(guard)]
    given = _given(case.sources, way[0])
    if given:
        return ["; ", Joined([[subject_of(each), Joined(each.tests, " and ")] for each in given])]
    found = [(way[0], guard) for guard in around[-1:]]
    return [", and ", cited(found[0][1], found[0][0].file), f" was {found[0][1].taken} there"] if found else ""


def _given(sources: Sources, at: Frame) -> list[Answer]:
    """What set the values that the statement looks into: of `gain["value"]`, `gain`."""
    here = place_of(sources, at.file, at.line)
    found: dict[Answer, None] = {}
    for node in walk(here.function) if here is not None else ():
        if not isinstance(node, ast.Subscript | ast.Attribute) or node.lineno != at.line or here is None:
            continue
        asked = [node.value, node.slice] if isinstance(node, ast.Subscript) else [node.value]
        for each in asked:
            if isinstance(each, ast.Name | ast.Call) or (isinstance(each, ast.Attribute) and each is node.value):
                found |= dict.fromkeys(set_by(sources, here, each, by_rank=False))
    tests = {test for answer in found for test in answer.tests}
    return list(found) if 0 < len(tests) <= NAMED else []
