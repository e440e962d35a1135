"""What we call it and how to fix it: one module per family of the catalogue. Importing one registers its rules."""

from __future__ import annotations

from hangdoc.diagnosis.causes import (
    busy,
    diverging,
    exchanges,
    exits,
    forms,
    group_making,
    idle_servers,
    interrupted,
    launching,
    locked,
    micro_batches,
    network,
    on_devices,
    on_the_gpu,
    ordering,
    own_children,
    own_loop,
    starting,
    threads,
    unnamed,
    unused_parameters,
)
from hangdoc.diagnosis.causes.registry import name_cause

__all__ = [
    "busy",
    "diverging",
    "exchanges",
    "exits",
    "forms",
    "group_making",
    "idle_servers",
    "interrupted",
    "launching",
    "locked",
    "micro_batches",
    "name_cause",
    "network",
    "on_devices",
    "on_the_gpu",
    "ordering",
    "own_children",
    "own_loop",
    "starting",
    "threads",
    "unnamed",
    "unused_parameters",
]
