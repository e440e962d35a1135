"""Forward, backward, hooks, step."""

from dataclasses import dataclass, field
from typing import Any

from hooks import HOOKS
from reporting import say
from training.losses import hits, masked_loss
from training.optim import OPTIMIZERS, rate_at


@dataclass
class State:
    """What hooks see of a step."""

    net: Any
    groups: Any
    config: dict
    ledger: Any
    small_below: int
    step: int = 0
    notes: dict = field(default_factory=dict)


def keep_best(notes, loss, step):
    if "best" not in notes or loss < notes["best"][0]:
        notes["best"] = (loss, step)
    elif step - notes["best"][1] > 6:
        notes["stale"] = notes.get("stale", 0) + 1


def train(net, stream, groups, config, ledger):
    """Run all steps; every rank has a batch in each."""
    hooks = config["hooks"]
    state = State(net, groups, config, ledger, small_below=0 if hooks["ordered"] else hooks["small_below"])
    update, table = OPTIMIZERS[config["optim"]["name"]], {}
    net.train()
    for step in range(config["steps"]):
        state.step = step
        inputs, targets = next(stream)
        net.zero_grad(set_to_none=True)
        logits = net(inputs)
        loss = masked_loss(logits, targets)
        loss.backward()
        value = loss.item()
        state.notes["used"] = [list(layer.experts.used) for layer in net.layers]
        HOOKS.run(state)
        for layer in net.layers:
            layer.experts.take_used()
        update(net, table, rate_at(step, config["steps"], config["optim"]), config["optim"])
        found, asked = hits(logits, targets, 1)
        keep_best(state.notes, value, step)
        ledger.step(step, value, found, asked)
        if (step + 1) % config["report"]["every"] == 0 and groups.rank == 0:
            say(groups, ledger.line())
    if stream.padded and groups.rank == 0:
        ledger.add("padding", stream.padded)
    return state
