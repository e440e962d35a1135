"""A plain momentum optimizer with two sets of parameters. Parameters without a gradient stay as they are."""

import torch


class Momentum:
    def __init__(self, sets, beta=0.9):
        self.sets = sets  # list of (parameters, rate)
        self.beta = beta
        self.speed = {}
        self.idle = {}

    def zero_grad(self):
        for parameters, _ in self.sets:
            for parameter in parameters:
                parameter.grad = None

    @torch.no_grad()
    def step(self, factor):
        for parameters, rate in self.sets:
            for parameter in parameters:
                key = id(parameter)
                if parameter.grad is None:
                    self.idle[key] = self.idle.get(key, 0) + 1
                    continue
                speed = self.speed.get(key)
                if speed is None:
                    speed = self.speed[key] = torch.zeros_like(parameter)
                speed.mul_(self.beta).add_(parameter.grad)
                parameter.add_(speed, alpha=-rate * factor)

    def state(self):
        return {"idle": sum(self.idle.values()), "moving": sum(1 for speed in self.speed.values() if speed.any())}


def make_optimizer(dense, sparse, options):
    rate = options["rate"]
    expert_rate = options["expert_rate"] if options["expert_rate"] is not None else 2 * rate
    return Momentum([(dense, rate), (sparse, expert_rate)])
