"""u_t + u u_x = v u_xx on a ring, by upwind differences."""

import math

import torch


def upwind(u: torch.Tensor, dx: float) -> torch.Tensor:
    left = (u - u.roll(1, -1)) / dx
    right = (u.roll(-1, -1) - u) / dx
    return torch.where(u > 0, left, right)


def laplacian(u: torch.Tensor, dx: float) -> torch.Tensor:
    return (u.roll(1, -1) - 2 * u + u.roll(-1, -1)) / (dx * dx)


def stable_dt(u: torch.Tensor, dx: float, viscosity: float) -> float:
    fastest = float(u.abs().max())
    advective = 0.4 * dx / fastest if fastest > 1e-6 else math.inf
    diffusive = 0.4 * dx * dx / viscosity if viscosity > 0 else math.inf
    return min(advective, diffusive)


def advance(u: torch.Tensor, span: float, viscosity: float, substeps: int) -> tuple[torch.Tensor, int]:
    """The field after ``span``, and how many steps that took: more than ``substeps`` where it is steep."""
    dx = 1.0 / u.shape[-1]
    done, count = 0.0, 0
    while done < span - 1e-9:
        dt = min(span - done, span / substeps, stable_dt(u, dx, viscosity))
        u = u + dt * (viscosity * laplacian(u, dx) - u * upwind(u, dx))
        done += dt
        count += 1
        if count > 400:
            raise RuntimeError("the field blew up")
    return u, count


def steepest(u: torch.Tensor) -> float:
    return float((u.roll(-1, -1) - u).abs().max()) * u.shape[-1]
