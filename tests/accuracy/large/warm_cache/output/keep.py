"""Weights on disk."""

import logging
from pathlib import Path

import torch

log = logging.getLogger("tickets.keep")


def free_name(folder, stem):
    """A path that no file has yet."""
    number = 0
    while True:
        path = folder / (stem + (f"-{number}" if number else "") + ".pt")
        if not path.exists():
            return path
        number += 1


def write(result, opts):
    """Write weights and checks; a full disk is no reason to fail."""
    folder = Path(opts["output"]["folder"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = free_name(folder, "tickets")
        torch.save({"weights": result.weights, "checks": result.checks, "options": opts}, path)
    except OSError as error:
        log.warning("nothing is kept: %s", error)
        return None
    log.info("kept in %s", path.name)
    return path
