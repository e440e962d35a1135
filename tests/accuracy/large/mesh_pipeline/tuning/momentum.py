from __future__ import annotations

import torch


class Momentum:
    def __init__(self, parameters: list[torch.nn.Parameter], decay: float) -> None:
        self.parameters = parameters
        self.decay = decay
        self.velocity: list[torch.Tensor | None] = [None] * len(parameters)

    @torch.no_grad()
    def move(self, rate: float) -> None:
        for number, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            velocity = self.velocity[number]
            if velocity is None or self.decay == 0:
                velocity = parameter.grad.clone()
            else:
                velocity.mul_(self.decay).add_(parameter.grad)
            self.velocity[number] = velocity
            parameter.sub_(rate * velocity)
            parameter.grad = None
