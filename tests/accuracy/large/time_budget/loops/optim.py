"""A small optimizer with a learning rate of its own."""

import math

import torch


class Descent:
    def __init__(self, net, optim, steps):
        self.params = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
        self.optim = optim
        self.steps = steps
        self.first, self.second = {}, {}
        self.done = 0

    def rate(self):
        warm, floor = self.optim["warm"], self.optim["floor"]
        if self.done < warm:
            return self.optim["lr"] * (self.done + 1) / warm
        rest = (self.done - warm) / max(1, self.steps - warm)
        return self.optim["lr"] * max(floor, 0.5 * (1 + math.cos(math.pi * min(1.0, rest))))

    def clip(self):
        limit = self.optim["clip"]
        norm = math.sqrt(sum(float(p.grad.pow(2).sum()) for _, p in self.params if p.grad is not None))
        if not limit or norm <= limit:
            return norm, False
        for _, p in self.params:
            if p.grad is not None:
                p.grad *= limit / norm
        return norm, True

    @torch.no_grad()
    def step(self):
        rate, beta = self.rate(), self.optim["beta"]
        self.done += 1
        for name, p in self.params:
            grad = p.grad
            if grad is None:
                continue
            if self.optim["centre"] and grad.dim() > 1:
                grad = grad - grad.mean(dim=1, keepdim=True)
            m = self.first.setdefault(name, torch.zeros_like(p))
            v = self.second.setdefault(name, torch.zeros_like(p))
            m.mul_(beta).add_(grad, alpha=1 - beta)
            v.mul_(0.99).addcmul_(grad, grad, value=0.01)
            unbiased = (v / (1 - 0.99**self.done)).sqrt_().add_(1e-8)
            if p.dim() > 1 and self.optim["decay"]:
                p.mul_(1 - rate * self.optim["decay"])
            p.addcdiv_(m / (1 - beta**self.done), unbiased, value=-rate)

    def zero(self):
        for _, p in self.params:
            p.grad = None
