"""Tables of the splits, as each rank sees them."""

import logging
from collections import namedtuple
from pathlib import Path

import torch
import torch.distributed as dist

from cache import provider, waiting
from cache.fingerprint import fingerprint, recipe_of

log = logging.getLogger("tickets.tables")

Desk = namedtuple("Desk", "opts place store root wanted")
Table = namedtuple("Table", "split rows width kinds values labels")


def open_desk(opts, place, store):
    root = Path(f"{opts['cache']['folder']}-{place.run}").resolve()
    wanted = {fingerprint(recipe_of(opts, split))[:12] for split in opts["splits"]}
    if place.provides:
        root.mkdir(parents=True, exist_ok=True)
    if len(wanted) < len(opts["splits"]):
        log.info("%d splits need %d tables", len(opts["splits"]), len(wanted))
    return Desk(opts, place, store, root, wanted)


def load(desk, split):
    """The rows of this rank. A collective: rank 0 tells how large the table is."""
    recipe = recipe_of(desk.opts, split)
    if desk.place.provides:
        folder = provider.provide(recipe, desk.root, desk.opts, desk.store)
    else:
        folder = waiting.wait_for(recipe, desk.store)
    values, labels = waiting.read_parts(folder, desk.place.rank, desk.place.size)
    rows, width, kinds = shape_of(folder, desk.place)
    if len(values) < rows // desk.place.size:
        raise RuntimeError(f"{split} lacks rows: {len(values)} of {rows}")
    log.debug("%s: %d of %d rows", split, len(values), rows)
    return Table(split, rows, width, kinds, values, labels)


def shape_of(folder, place):
    header = torch.zeros(3, dtype=torch.long)
    if place.provides:
        content = waiting.manifest.read(folder)["header"]
        header = torch.tensor([content["rows"], content["width"], content["kinds"]])
    dist.broadcast(header, src=0)
    return header.tolist()


def close_desk(desk):
    dist.barrier()
    if desk.place.provides:
        provider.tidy(desk.root, desk.wanted, desk.opts["cache"]["keep"])
