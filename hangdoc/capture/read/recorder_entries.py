"""What an entry of a recorder says of its call: the operation, and how far it has come.

The latter depends on the backend:

- gloo's own leaves each call 'scheduled', and ``retired`` says that it has ended (torch 2.6-2.15).
- Those of NCCL and its like see 'started' and 'completed'. What their watchdog retires before that has timed out.
- c10d's hooks (torch 2.14 and later: nccl2, nccl-lazy, ucc, mpi, whatever is registered) know 'completed' where the
  backend tells them of it: there a call is 'scheduled' until then, and one that failed stays so. Where the backend does
  not, they retire each call as soon as it is issued. torchcomms's hook does that always.
- XCCL's marks next to nothing completed: what is not may have ended long ago.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hangdoc.capture.read.recorder_values import text

POINT_TO_POINT = {"send", "recv", "recv_anysource"}

# The names under which Python callers know the operations. Left: what backends record (torch 2.6-2.15).
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "all_reduce_barrier": "barrier",
    "allgather": "all_gather",
    "all_gather_v": "all_gather",
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_single": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "all_gather_coalesced": "all_gather",
    "allgather_coalesced": "all_gather",
    "_broadcast_oop": "broadcast",
    "broadcast_coalesced": "broadcast",
    "_reduce_oop": "reduce",
    "reduce_scatter_v": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
    "all_to_all_base": "all_to_all_single",
    "all_to_all_v_single": "all_to_all_single",
    "split": "split_group",
}
_MESSAGE = re.compile(r"(send|recv) \d+(?:->|<-)(\d+|\?)$")
_STATES = {"scheduled", "started", "completed"}
_WATCHED = {"nccl", "ncclx", "rccl", "rcclx", "mccl", "hccl"}
"""Backends whose own watchdog retires their calls."""
_ON_DEVICES = _WATCHED | {"nccl2", "nccl-lazy", "xccl"}
"""Backends whose calls a device executes: the CPU has issued more of them than the device has come to."""


def operation(profiling_name: str) -> tuple[str, int]:
    """'gloo:all_reduce' → ('all_reduce', -1); 'nccl:send 0->1' → ('send', 1); 'nccl2:recv 0<-?' →
    ('recv_anysource', -1).

    The peer is the one of the recorder: a rank in the group.
    """
    name = profiling_name.rsplit(":", 1)[-1].strip()
    if match := _MESSAGE.match(name):
        return (match[1], int(match[2])) if match[2] != "?" else ("recv_anysource", -1)
    name = name.rstrip("_") or name
    return _OPERATIONS.get(name, name), -1


@dataclass(frozen=True, slots=True)
class Progress:
    """``state``: as of ``Call``. ``unsure``: nothing says whether the call has ended; it counts as completed."""

    state: str
    completed: bool
    gave_up: bool = False
    """PyTorch's watchdog retired the call though it had not completed."""
    unsure: bool = False
    hooked: bool = False
    """c10d's hook has recorded it, which counts operations in its own way, from 0."""


def progress_of(entry: dict[Any, Any]) -> Progress:
    """What the entry says of its call."""
    library = text(entry.get("profiling_name")).rpartition(":")[0]
    state, retired = entry.get("state"), entry.get("retired") is True
    completed = state == "completed"
    by_torchcomms = _description(entry) == library  # it has no other description of a group than its backend's name
    if library == "gloo" and not by_torchcomms:
        return Progress("", completed or retired)
    watched = library in _WATCHED and not by_torchcomms
    hooked = not watched and library != "xccl"
    if not completed and not watched and (retired or library == "xccl"):
        return Progress("", completed=True, unsure=True, hooked=hooked)
    known = str(state) if library in _ON_DEVICES and isinstance(state, str) and state in _STATES else ""
    return Progress(known, completed, gave_up=watched and retired and not completed, hooked=hooked)


def _description(entry: dict[Any, Any]) -> str:
    group = entry.get("process_group")
    return text(group[1]) if isinstance(group, (tuple, list)) and len(group) == 2 else ""
