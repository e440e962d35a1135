"""What a training step is made of: data loading, forward, backward, optimizer step. Off unless the watch asks for it.

Hooks on modules would make torch.compile trace or refuse them, so there are none. What is called once a step is timed:
the data loader's next batch, ``torch.autograd.backward`` and, by torch's own global hooks, the optimizer's step. What
lies between a batch and the backward pass after it is told as the forward pass: it has the loss in it, too.
"""

from __future__ import annotations

import atexit
import functools
import time
from _thread import get_ident
from collections import deque


class Phases:
    """Rows [name, begun, ended (0: under way), thread], times in Unix ns."""

    def __init__(self, entries):
        self.rows = deque(maxlen=entries)
        self.batch_at = {}  # thread -> when its last batch came; none since the backward pass after it
        self.steps = {}  # id of an optimizer whose step is under way -> its row

    def forget(self):
        """A forked child has phases of its own."""
        self.rows.clear()
        self.batch_at.clear()
        self.steps.clear()

    def begin(self, name, begun=None):
        """A row that is under way."""
        row = [name, time.time_ns() if begun is None else begun, 0, get_ident()]
        self.rows.append(row)
        return row

    def ended(self, row):
        """It is over."""
        row[2] = time.time_ns()


def install(phases, hide):
    """Begin to record. ``hide``: keeps torch.compile away from functions."""
    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    backward, following = torch.autograd.backward, dataloader._BaseDataLoaderIter.__next__
    timed_backward, timed_next = _timed_backward(phases, backward), _timed_next(phases, following)
    before, after = _step_hooks(phases)
    hide(timed_backward, timed_next, before, after, Phases.begin, Phases.ended)
    torch.autograd.backward = timed_backward
    dataloader._BaseDataLoaderIter.__next__ = timed_next
    handles = []
    if hasattr(optimizer, "register_optimizer_step_pre_hook"):  # torch 2.0 and later
        handles = [
            optimizer.register_optimizer_step_pre_hook(before),
            optimizer.register_optimizer_step_post_hook(after),
        ]

    def remove():
        for handle in handles:
            handle.remove()
        if torch.autograd.backward is timed_backward:
            torch.autograd.backward = backward
        if dataloader._BaseDataLoaderIter.__next__ is timed_next:
            dataloader._BaseDataLoaderIter.__next__ = following

    atexit.register(remove)
    return remove


def _timed_next(phases, original):
    @functools.wraps(original)
    def timed_next(self):
        row = phases.begin("data")
        try:
            return original(self)
        finally:
            phases.ended(row)
            phases.batch_at[row[3]] = row[2]

    return timed_next


def _timed_backward(phases, original):
    @functools.wraps(original)
    def timed_backward(*args, **kwargs):
        row = phases.begin("backward")
        batch_at = phases.batch_at.pop(row[3], None)
        if batch_at is not None:
            phases.rows.append(["forward", batch_at, row[1], row[3]])
        try:
            return original(*args, **kwargs)
        finally:
            phases.ended(row)

    return timed_backward


def _step_hooks(phases):
    def before(optimizer, _args, _kwargs):
        phases.steps[id(optimizer)] = phases.begin("optimizer")

    def after(optimizer, _args, _kwargs):
        row = phases.steps.pop(id(optimizer), None)
        if row is not None:
            phases.ended(row)

    return before, after
