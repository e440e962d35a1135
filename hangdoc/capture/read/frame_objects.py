"""The plain attributes of the objects that frames hold, beside the locals that py-spy shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hangdoc.capture.read.objects import Objects, open_objects
from hangdoc.model.frames import is_library_file
from hangdoc.model.process import Frame, Local, Stack

_MOST_ADDED = 300
"""Locals in one process. Judgement: a stack has some ten frames of the user's, each with one object or two."""
_TORCHS_CALLS = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
    "/torch/distributed/tensor/",
)


def with_attributes(pid: int, stacks: Sequence[Stack], shown: Sequence[Mapping[str, Any]]) -> list[Stack]:
    """``stacks`` with locals such as `self.step` and `group.members`, read from the memory of the process.

    ``shown``: the threads as py-spy shows them, with the objects' addresses.
    """
    objects = open_objects(pid, (frame.file for stack in stacks for frame in stack))
    if objects is None:
        return list(stacks)
    threads = [[_texts(frame) for frame in thread["frames"]] for thread in shown]
    with objects:
        objects.find_groups(text for frames in threads for values in frames for text in values.values())
        left = _MOST_ADDED
        completed = []
        for stack, frames in zip(stacks, threads, strict=False):
            found = [_added(objects, frame, values) for frame, values in zip(stack, frames, strict=False)]
            kept = []
            for frame, added in zip(stack, found, strict=True):
                kept.append(replace(frame, locals=(*frame.locals, *added[:left])) if added[:left] else frame)
                left -= len(added[:left])
            completed.append(tuple(kept))
    return completed


def _texts(frame: Mapping[str, Any]) -> dict[str, str]:
    return {str(each.get("name")): str(each["repr"]) for each in frame.get("locals") or () if each.get("repr")}


def _added(objects: Objects, frame: Frame, values: Mapping[str, str]) -> list[Local]:
    if any(part in frame.file for part in _TORCHS_CALLS):
        return objects.group_of_call(values)
    if is_library_file(frame.file) or frame.function == "<module>":
        return []
    return [local for name, text in values.items() if name.isidentifier() for local in objects.attributes(name, text)]
