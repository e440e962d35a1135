"""The side of the cache that waits for tables and reads them."""

import logging
import time
from datetime import timedelta
from pathlib import Path

import torch

from cache import manifest
from cache.keys import announcement

log = logging.getLogger("tickets.cache")
LONGEST = timedelta(hours=1)


def wait_for(recipe, store):
    """The folder that the provider announces."""
    key = announcement(recipe.split)
    began = time.monotonic()
    store.wait([key], LONGEST)
    if time.monotonic() - began > 5.0:
        log.warning("%s came late", recipe.split)
    return Path(store.get(key).decode())


def read_parts(folder, first=0, every=1):
    """(rows, labels) of every ``every``-th row from ``first`` on; a rank reads only parts that hold some of these."""
    content = manifest.read(folder)
    if content is None:
        raise FileNotFoundError(f"no manifest in {folder}")
    rows, labels, at = [], [], 0
    for part in content["parts"]:
        loaded = torch.load(folder / part["name"], weights_only=True)
        count = len(loaded["labels"])
        chosen = [index for index in range(count) if (at + index) % every == first]
        at += count
        if not chosen:
            continue
        rows.append(loaded["rows"][chosen].float())
        labels.append(loaded["labels"][chosen])
    if not rows:
        return torch.zeros(0, content["header"]["width"]), torch.zeros(0, dtype=torch.long)
    return torch.cat(rows), torch.cat(labels)
