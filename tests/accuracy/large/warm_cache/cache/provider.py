"""The side of the cache that makes tables."""

import logging
import shutil
import time

import torch

from cache import manifest
from cache.fingerprint import fingerprint
from cache.freshness import is_warm, others
from cache.keys import announcement
from corpus import features, source

log = logging.getLogger("tickets.cache")


def provide(recipe, root, opts, store):
    """The folder with the table of the recipe, made now if need be."""
    print_of = fingerprint(recipe)
    folder = root / print_of[:12]
    if is_warm(folder, print_of):
        log.info("%s: taken from %s", recipe.split, folder.name)
        return folder
    if folder.exists():
        log.info("%s: %s is made anew", recipe.split, folder.name)
        shutil.rmtree(folder)
    began = time.monotonic()
    header = build(recipe, folder, opts["cache"], print_of)
    store.set(announcement(recipe.split), str(folder))
    seconds = time.monotonic() - began
    if seconds > 0.5:
        log.info("%s: %d rows took %.1f s", recipe.split, header["rows"], seconds)
    return folder


def build(recipe, folder, settings, print_of):
    """Write the table in parts, then its manifest. Returns the header."""
    folder.mkdir(parents=True)
    tickets = list(source.tickets(recipe))
    weights = features.document_weights(tickets, recipe.features)
    parts, rows, labels, values = [], 0, [], []
    for ticket in tickets:
        row = features.row_of(ticket.text, recipe.features, weights)
        if row is None:
            continue
        values.append(row)
        labels.append(source.KINDS.index(ticket.kind))
        rows += 1
        if len(values) == settings["part_rows"]:
            parts.append(write_part(folder, len(parts), values, labels, settings["compress"]))
            values, labels = [], []
    if values:
        parts.append(write_part(folder, len(parts), values, labels, settings["compress"]))
    header = {"rows": rows, "width": recipe.features["buckets"], "kinds": len(source.KINDS)}
    manifest.write(folder, print_of, parts, header)
    return header


def write_part(folder, number, values, labels, compress):
    rows = torch.stack(values)
    path = folder / f"part-{number:04d}.pt"
    torch.save({"rows": rows.half() if compress else rows, "labels": torch.tensor(labels)}, path)
    return path


def tidy(root, wanted, keep):
    """Remove what nobody wants any more; everything where nothing is kept."""
    if not keep:
        shutil.rmtree(root, ignore_errors=True)
        return
    for folder in others(root, wanted)[:-2]:
        shutil.rmtree(folder, ignore_errors=True)
