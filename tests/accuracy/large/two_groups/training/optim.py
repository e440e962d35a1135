"""Optimizers as functions over a table of their state."""

import math

import torch

OPTIMIZERS = {}


def optimizer(name):
    def keep(function):
        OPTIMIZERS[name] = function
        return function

    return keep


def rate_at(step, total, config):
    """Linear warm-up, then the inverse square root, and down to nothing in the last tenth."""
    rate, warm = config["rate"], config["warm"]
    if step < warm:
        return rate * (step + 1) / warm
    value = rate * math.sqrt(warm / (step + 1)) if warm else rate
    tail = max(1, total // 10)
    left = total - step
    return value * left / tail if left < tail else value


@optimizer("adam")
@torch.no_grad()
def adam(net, table, rate, config):
    first, second = config["betas"]
    table["count"] = count = table.get("count", 0) + 1
    for name, weight in net.named_parameters():
        if weight.grad is None or any(name.startswith(prefix) for prefix in config["skip"]):
            continue
        if name not in table:
            table[name] = (torch.zeros_like(weight), torch.zeros_like(weight))
        mean, square = table[name]
        mean.lerp_(weight.grad, 1 - first)
        square.mul_(second).addcmul_(weight.grad, weight.grad, value=1 - second)
        change = (mean / (1 - first**count)) / ((square / (1 - second**count)).sqrt() + 1e-8)
        if config["decay"] and weight.dim() > 1:
            weight.mul_(1 - rate * config["decay"])
        weight.sub_(rate * change)


@optimizer("sgd")
@torch.no_grad()
def sgd(net, table, rate, config):
    for name, weight in net.named_parameters():
        if weight.grad is not None and not any(name.startswith(prefix) for prefix in config["skip"]):
            weight.sub_(rate * weight.grad)
