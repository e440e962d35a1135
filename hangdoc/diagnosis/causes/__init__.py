"""What we call it and how to fix it: one module per family of the catalogue. Importing one registers its rules."""

from __future__ import annotations

from hangdoc.diagnosis.causes import (
    busy,
    circles,
    diverging,
    exchanges,
    exits,
    implicit,
    interrupted,
    launching,
    library_loops,
    locked,
    messages,
    network,
    on_devices,
    on_the_gpu,
    ordering,
    own_children,
    own_loop,
    starting,
    threads,
    uneven_loops,
    unnamed,
)
from hangdoc.diagnosis.causes.registry import name_cause

__all__ = [
    "busy",
    "circles",
    "diverging",
    "exchanges",
    "exits",
    "implicit",
    "interrupted",
    "launching",
    "library_loops",
    "locked",
    "messages",
    "name_cause",
    "network",
    "on_devices",
    "on_the_gpu",
    "ordering",
    "own_children",
    "own_loop",
    "starting",
    "threads",
    "uneven_loops",
    "unnamed",
]
