"""One step, and many."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from sparselab.network.whole import loss_of
from sparselab.parallel.gradients import average_all, clip, norm_of
from sparselab.reporting.console import say, warn
from sparselab.training.health import look, must_stop


@dataclass
class TrainState:
    network: Any
    dense: list
    sparse: list
    optimizer: Any
    schedule: Any
    counters: Any
    step: int = 0
    bad_steps: int = 0
    best: float = float("inf")
    notes: dict = field(default_factory=dict)


def one_step(state, batch, options, mesh):
    state.network.train()
    state.optimizer.zero_grad()
    scores, taken = state.network(batch, mesh.expert)
    loss = loss_of(scores, batch.targets)
    loss.backward()
    remember_route(state, taken)
    exchanged = average_all(state, mesh, options)
    if clip(state.dense, options["clip"]):
        state.counters.count("clipped")
    if norm_of(state.sparse) > 4 * (options["clip"] or 1.0):
        clip(state.sparse, options["clip"])
        state.counters.count("clipped experts")
    state.optimizer.step(state.schedule(state.step))
    return float(loss.detach()), exchanged


def remember_route(state, taken):
    state.counters.add("share", taken.share)
    if taken.dropped:
        state.counters.count("dropped", taken.dropped)
    if not taken.used:
        state.counters.count("unused")


def run_steps(state, stream, hooks, options, mesh):
    while state.step < options["steps"]:
        begin = time.perf_counter()
        batch = next(stream)
        waited = time.perf_counter() - begin
        loss, exchanged = one_step(state, batch, options, mesh)
        seconds = time.perf_counter() - begin
        if waited > 0.5 * seconds:
            state.counters.count("waited for data")
        verdict = look(state, loss)
        if verdict:
            state.bad_steps += 1
            if verdict == 2:
                warn(mesh, f"step {state.step}: the loss is {loss}")
        elif state.bad_steps and loss < state.best:
            state.bad_steps -= 1
        state.best = min(state.best, loss)
        state.counters.add("loss", loss)
        if "table" in batch.topics:
            state.counters.count("tables", batch.topics.count("table"))
        for hook in hooks:
            hook(state, options, mesh)
        if must_stop(state, options):
            say(mesh, f"stopped in step {state.step}, {exchanged} numbers a step")
            break
        state.step += 1
    return state


def snapshot(state):
    with torch.no_grad():
        return {name: value.clone() for name, value in state.network.state_dict().items() if name != "table"}
