"""The steps of training."""

from training.steps import train

__all__ = ["train"]
