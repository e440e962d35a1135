import torch


def relative_errors(forecast: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """One for each window: the error's norm by the field's."""
    error = (forecast - truth).flatten(1).norm(dim=1)
    return error / truth.flatten(1).norm(dim=1).clamp_min(1e-3)


def weighted(forecast: torch.Tensor, truth: torch.Tensor, decay: float = 0.8) -> torch.Tensor:
    """Mean square, later steps counting less."""
    weights = torch.tensor([decay**step for step in range(truth.shape[1])])
    squares = (forecast - truth).pow(2).mean(dim=(0, 2))
    return (weights * squares).sum() / weights.sum()


def persistence(start: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Errors of the forecast that nothing changes."""
    return relative_errors(start.unsqueeze(1).expand_as(truth), truth)
