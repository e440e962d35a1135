"""What happens between the backward and the step."""

import importlib

from hooks.registry import HOOKS

_HOMES = ("sync", "shape", "watch")

__all__ = ["HOOKS", "import_hooks"]


def import_hooks(config):
    """Import all homes of hooks, and keep those that the configuration uses."""
    for home in _HOMES:
        importlib.import_module(f"hooks.{home}")
    HOOKS.select(config)
