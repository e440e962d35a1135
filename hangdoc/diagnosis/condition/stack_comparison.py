"""Which of two stacks is further on in the innermost function that they share, and which guards are around a frame."""

from __future__ import annotations

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import Fork, fork
from hangdoc.diagnosis.source.guards import Guard, guards, guards_in_expression
from hangdoc.diagnosis.source.queries import evaluated_before, is_generator
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.process import Frame, Stack

_LONGEST = 200
"""Lines of a loop that are looked through; chosen by hand."""


def within_one_function(sources: Sources, where: Fork) -> tuple[Frame, Frame] | None:
    """The frames at which the stacks diverge, where both are in one function, at different lines.

    Frames bear the plain names of their functions, so their source says whether it is one. Example: Plain.reduce:41 and
    Scaled.reduce:48, in one file → None: their caller called two objects.
    """
    if where.within_function is None:
        return None
    trees = [(sources.function(frame.file, frame.line), frame.line) for frame in where.within_function]
    firsts = {getattr(enclosing_function(tree, line), "lineno", 0) for tree, line in trees if tree is not None}
    return where.within_function if len(firsts) < 2 else None


def is_past(sources: Sources, stack: Stack, other: Stack) -> str | None:
    """Whether ``stack`` is further on than ``other``, in the innermost function that they share.

    'certainly'; 'perhaps' where both are in one loop or the source is unknown; None: it is not.
    Example: main:9 is 'certainly' past main:3 → save:1, where no loop contains both lines of main.
    """
    where = fork(stack, other)
    if where.frames is None:
        return None
    diverged = within_one_function(sources, where)
    if has_returned(sources, where.mine, where.theirs, where.common):
        compared = where.mine[where.common - 1], where.theirs[where.common - 1]
    elif diverged is not None and diverged[0].line > diverged[1].line:
        compared = diverged
    else:
        return None
    if sources.function(compared[0].file, compared[0].line) is None:
        return "perhaps"
    callees = {**callees_of(stack), **callees_of(other)}
    loops = [{g.place for g in guards_of(sources, frame, callees) if g.kind == "loop"} for frame in compared]
    return "perhaps" if loops[0] & loops[1] else "certainly"


def in_one_loop(sources: Sources, stack: Stack, other: Stack) -> bool:
    """True if a loop of a function that both share holds the lines at which they diverge, or leads to them.

    Example: main:3 → train:9 and main:5, in the loop at main:2 → True.
    """
    where = fork(stack, other)
    diverged = within_one_function(sources, where)
    pairs = [*((frame, frame) for frame in where.mine[: where.common]), *([diverged] if diverged is not None else [])]
    callees = {**callees_of(stack), **callees_of(other)}
    loops = (
        [{g.place for g in guards_of(sources, frame, callees) if g.kind == "loop"} for frame in pair] for pair in pairs
    )
    return any(mine & theirs for mine, theirs in loops)


def is_ahead(sources: Sources, stack: Stack, other: Stack) -> bool:
    """True if ``stack`` is certainly past ``other``, and nothing repeats what they share: ``other`` has not come to it.

    Example: main:9, after the loop at main:3, and main:4 → step:1 in that loop → True.
    """
    if is_past(sources, stack, other) != "certainly":
        return False
    shared = fork(stack, other)
    callers = shared.mine[: shared.common]
    callees = callees_of(stack)
    return all(
        sources.function(frame.file, frame.line) is not None
        and not _is_called_by_library(stack, frame)
        and not any(guard.kind == "loop" for guard in guards_of(sources, frame, callees))
        for frame in callers
    )


def common_rounds(sources: Sources, stack: Stack, other: Stack) -> list[tuple[str, str, str]]:
    """(file, function, name that counts the rounds) of the loops that both are in, the outermost first; [] where
    nothing counts the innermost of them.

    They are those of the innermost function that both share, and those around the calls that lead there, as far out as
    no library lies between, whose loops cannot be seen. Example: both are in fit(), in `for step in range(n):`, or in
    what it calls there → [('train.py', 'fit', 'step')]. A loop that only waits for what was issued before it has no
    rounds of its own. One call may lead to different functions, such as
    `role.step(n)` to Actor.step() and Learner.step(): it is in the same round of its loops all the same.
    """
    where = fork(stack, other)
    within_one = within_one_function(sources, where) is not None
    found: list[tuple[str, str, str]] = []
    ways = [list(reversed(way[: where.common + within_one])) for way in (where.mine, where.theirs)]
    for mine, theirs in zip(*ways, strict=True):
        around = [guards_of(sources, f, callees_of(s)) for f, s in ((mine, stack), (theirs, other))]
        loops = [g for g in around[0] if g.kind == "loop" and g in around[1] and not waits_only(sources, mine, g)]
        if loops and not loops[-1].rounds and not found:
            return []  # it goes round unseen, however far the loops around it have counted
        found = [*((mine.file, mine.function, name) for g in loops for name in g.rounds), *found]
        if _is_called_by_library(stack, mine):
            break
    return found


def waits_only(sources: Sources, frame: Frame, loop: Guard) -> bool:
    """True for a loop around the line that only waits for messages which were issued before it: `for work in works: ⏎
    work.wait()`."""
    first, last = loop.span
    if loop.kind != "loop" or not first < frame.line <= last:
        return False
    body = [sources.line(frame.file, line) or "" for line in range(first + 1, min(last, first + _LONGEST) + 1)]
    waits = any(call in line for line in body for call in names("wait_call"))
    return waits and not any(call in line for line in body for call in names("issues_message"))


def _is_called_by_library(stack: Stack, frame: Frame) -> bool:
    """True where a library calls the frame, which is more than a decorator that only hands on."""
    at = next(i for i, each in enumerate(stack) if each is frame)
    callers = (each for each in stack[at + 1 :] if not each.file.endswith(names("wrapper_file")))
    caller = next(callers, None)
    return caller is not None and is_library(caller)


_WITHIN_A_STATEMENT = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>"})
"""Functions whose line is within a statement of their caller (since Python 3.12, comprehensions have no frame)."""

Callees = dict[int, tuple[frozenset[str], Frame | None]]
"""Identity of a frame → (plain names of what it calls, down to the next user frame; the frame that it calls)."""


def readable(sources: Sources, stack: Stack) -> Stack:
    """The frames whose source can be read: the user's, captured or not, and those of a library that was captured."""
    return tuple(f for f in stack if not is_library(f) or sources.function(f.file, f.line) is not None)


def callees_of(stack: Stack) -> Callees:
    """What each frame of the stack calls.

    Example: main → (library) fit → step: main calls fit and step, step calls nothing.
    """
    found: Callees = {}
    names: set[str] = set()
    for at, frame in enumerate(stack):
        found[id(frame)] = frozenset(names), stack[at - 1] if at else None
        if not is_library(frame):
            names.clear()
        names.add(plain(frame.function))
    return found


def guards_of(sources: Sources, frame: Frame, callees: Callees) -> list[Guard]:
    """The guards around the frame's line in its own function, outermost first."""
    tree = sources.function(frame.file, frame.line)
    if tree is None:
        return []
    called, inner = callees.get(id(frame), (frozenset(), None))
    if plain(frame.function) in _WITHIN_A_STATEMENT:
        return guards_in_expression(tree, frame.line, called)
    return guards(tree, frame.line, called, iterating=inner is not None and _makes_items(sources, inner))


def _makes_items(sources: Sources, frame: Frame) -> bool:
    """True if the frame makes an iterator's next item: it is `__next__`, or the body of a generator."""
    if plain(frame.function) in ("__next__", "__anext__"):
        return True
    tree = sources.function(frame.file, frame.line)
    return tree is not None and is_generator(tree, frame.line)


def has_returned(sources: Sources, chain: Stack, other: Stack, at: int, calling: frozenset[str] = frozenset()) -> bool:
    """True if ``chain`` is in a call that is made only after the call that ``other`` is in has returned.

    Both are user frames, outermost first, and equal up to ``at``; ``calling``: the names of a library's functions that
    the last frame of ``chain`` calls. Examples: for `outer(inner())`, with ``chain`` in outer and ``other`` in inner →
    True; for `dist.all_gather_object(counts, fit(model))`, with ``other`` in fit → True.
    """
    if not at or at >= len(other):
        return False
    tree = sources.function(chain[at - 1].file, chain[at - 1].line)
    names = {plain(chain[at].function).rsplit(".", 1)[-1]} if at < len(chain) else calling
    inner = plain(other[at].function).rsplit(".", 1)[-1]
    return tree is not None and any(evaluated_before(tree, chain[at - 1].line, inner, outer) for outer in names)
