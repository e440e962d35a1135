import torch

from optim.lion import clipped, rate_at, updated
from run.state import State, StepNote
from setup.options import Options
from surrogate.losses import weighted
from surrogate.network import rollout
from talk.averaging import averaged
from talk.ranks import Here
from windows.batches import Batch


def update(state: State, batch: Batch, step: int, options: Options, here: Here) -> tuple[StepNote, torch.Tensor]:
    """One step of all ranks together; also this rank's forecast."""
    forecast = rollout(state.parameters, batch.start, options.horizon)
    loss = weighted(forecast, batch.following)
    names = list(state.parameters)
    found = torch.autograd.grad(loss, [state.parameters[name] for name in names], allow_unused=True)
    gradients = {
        name: gradient if gradient is not None else torch.zeros_like(state.parameters[name])
        for name, gradient in zip(names, found, strict=True)
    }
    gradients, norm = clipped(averaged(gradients, here.size), options.clip)
    rate = rate_at(step, options.rate, options.warmup, options.steps)
    state.moments = updated(state.parameters, gradients, state.moments, rate)
    return StepNote(step, loss.item(), norm, batch.shocks), forecast.detach()
