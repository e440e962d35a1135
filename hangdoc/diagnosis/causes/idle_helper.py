"""What a helper thread did with the work that it was given, where it waits for more and who gave it waits for that.

Example: rank 0's main thread waits in `while step not in self.scores: ⏎ self.scored.wait()`, and its evaluator is in

    step, weight = self.inbox.get()
    while not self.inbox.empty():
        step, weight = self.inbox.get()
    with self.scored:
        self.scores[step] = evaluate(weight)
        self.scored.notify_all()

again, of whose next item nobody is left to put it: what lies between the two lines decides what it came to →
`while not self.inbox.empty():`.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.calls_between import places_of_methods
from hangdoc.diagnosis.source.syntax import LOOPS, holds, text_of, walk
from hangdoc.diagnosis.state.threads import End, awaited_object
from hangdoc.model.message import Condition, Joined, Message
from hangdoc.model.process import Frame

_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


def passed_by_helper(case: Case, blame: Blame[Explanation]) -> Message:
    """What decides, in the loop of the thread that the culprit waits for, what it does with an item before it ends that
    wait: of these, what it alone has run; '' where that thread waits for anyone else than the culprit's main thread."""
    rank = blame.culprits[0]
    chain = case.chains.get(rank)
    if chain is None or chain.end is not End.OUTSIDE or len(chain.hops) != 2 or chain.last.rank != rank:
        return ""
    waits, idle = awaited_object(chain.hops[0].node, case.sources), awaited_object(chain.last, case.sources)
    helper = chain.last.where
    if waits is None or idle is None or helper is None or not _given_by(case, rank, idle):
        return ""
    ends = [at for at in places_of_methods(*waits, case.sources) if loop_around(case, helper, at) is not None]
    between = [each for at in ends[:1] for each in between_lines(case, helper, at)]
    sides = ((rank,), others_of(case, blame))
    alone = ran_alone(case, sides, awaited=True) if between and all(sides) else []
    ran = {(each.file, each.guard.line) for each in alone if each.side == 0}
    between = [each for each in between if (each.file, each.line) in ran] or between
    if not between:
        return ""
    taken: Message = ["what its thread took at ", line_of(helper), " came to ", line_of(ends[0]), " by way of "]
    return [taken, Joined(between[:_MOST_CONDITIONS], " and ")]


def _given_by(case: Case, rank: int, idle: tuple[str, tuple[str, ...]]) -> bool:
    """True if only the waiting main thread makes the calls that would give the helper more: no other thread of the
    user's is in a function of them, and the program starts none there."""
    process = case.ranks[rank].process
    others = process.last.threads[1:] if process is not None and process.last is not None else ()
    giving = places_of_methods(*idle, case.sources)
    inside = [f for t in others for f in user_stack(t.frames) if any(same_function(f, at) for at in giving)]
    return bool(giving) and not inside


def loop_around(case: Case, frame: Frame, at: Frame) -> ast.AST | None:
    """The loop that holds the frame's line and the other one."""
    if frame.file != at.file or plain(frame.function).rpartition(".")[2] != plain(at.function).rpartition(".")[2]:
        return None
    tree = case.sources.function(frame.file, frame.line)
    nodes = [n for n in walk(tree) if isinstance(n, LOOPS)] if tree is not None else []
    return next((n for n in nodes if holds(n, frame.line) and holds(n, at.line)), None)


def between_lines(case: Case, frame: Frame, at: Frame) -> list[Condition]:
    """The conditions and loops that begin between the two lines, of one loop around both."""
    loop = loop_around(case, frame, at)
    nodes = [n for n in walk(loop) if isinstance(n, ast.If | ast.While)] if loop is not None else []
    found = sorted((n for n in nodes if frame.line < n.lineno < at.line), key=lambda n: n.lineno)
    words = {ast.If: "if", ast.While: "while"}
    return [Condition(f"{words[type(node)]} {text_of(node.test)}:", at.file, node.lineno) for node in found]
