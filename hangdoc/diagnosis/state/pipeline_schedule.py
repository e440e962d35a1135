"""What the locals of a pipeline's schedule show: which stage a rank waits for, and into how many micro-batches it cuts.

A schedule waits for messages that were issued before, so no frame is in a send or a recv.
"""

from __future__ import annotations

import re

from hangdoc.diagnosis.frames.landmarks import below_user
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.process import Stack

_OPENING, _CLOSING = "([{<", ")]}>"
_CUT_SHORT = ("...", "…")


def peer_in_schedule(stack: Stack) -> int | None:
    """The rank whose message the schedule waits for: its works are kept by peer; None where several are, or none is.

    Example: `works` is `{1: [<Work>]}` → 1.
    """
    for value in _locals_of_schedule(stack, "pipeline_schedule_file", "works_by_peer"):
        peers = re.findall(r"(?:\{|, )(\d+): \[", value)
        return int(peers[0]) if len(peers) == 1 and not any(mark in value for mark in _CUT_SHORT) else None
    return None


def micro_batches(stack: Stack) -> int | None:
    """Into how many micro-batches the rank has cut its batch; None where the stack does not show it.

    Examples: `arg_mbs` is `[(), (), (), ()]` → 4; `num_microbatches` is `8` → 8.
    """
    values = _locals_of_schedule(stack, "micro_batches_file", "micro_batches_local")
    found = (int(value) if value.isdecimal() else items(value) for value in values)
    return next((count for count in found if count), None)


def micro_batches_of_object(stack: Stack) -> int | None:
    """The number that the schedule keeps which the user's frames hold; None where none is seen, or several differ.

    Example: `schedule._n_microbatches` is `6` in the function that has made a step → 6.
    """
    kept = (each for frame in user_stack(stack) for each in frame.locals)
    found = {each.value for each in kept if each.name.rpartition(".")[2] in names("micro_batches_attribute")}
    value = found.pop() if len(found) == 1 else ""
    return int(value) if value.isdecimal() else None


def _locals_of_schedule(stack: Stack, files: str, table: str) -> list[str]:
    """The values of the locals of these names, in the frames of these files."""
    frames = (frame for frame in below_user(stack) if frame.file.endswith(names(files)))
    return [local.value for frame in frames for local in frame.locals if local.name in names(table)]


def items(value: str) -> int | None:
    """How many items a list has, by its text; None for anything else, and for one that was cut short.

    Examples: '[(<Tensor>), ()]' → 2, '[]' → 0, '[(), ...]' → None.
    """
    if not (value.startswith("[") and value.endswith("]")):
        return None
    depth, commas, inside = 0, 0, value[1:-1]
    top = []
    for char in inside:
        depth += (char in _OPENING) - (char in _CLOSING)
        commas += char == "," and depth == 0
        top.append(char if depth == 0 else "")
    if depth or any(mark in "".join(top) for mark in _CUT_SHORT):
        return None
    return commas + 1 if inside.strip() else 0
