"""Batches of a rank."""

import random
from typing import NamedTuple

import torch

from sparselab.corpus.documents import document_source, draw_document
from sparselab.corpus.noise import choose_masked, disturb
from sparselab.corpus.packing import EMPTY, density, one_each, pack


class Batch(NamedTuple):
    inputs: torch.Tensor  # [rows, context - 1], 0 where empty
    targets: torch.Tensor  # [rows, context - 1], -100 where the loss does not count
    present: torch.Tensor  # [rows, context - 1]
    topics: tuple
    density: float


def to_batch(table, topics, masked=None):
    tokens = torch.tensor(table)
    present = tokens != EMPTY
    targets = torch.where(present, tokens, -100)[:, 1:]
    if masked is not None:
        targets = targets.masked_fill(torch.tensor(masked)[:, 1:], -100)
    return Batch(tokens.clamp(min=0)[:, :-1], targets, present[:, :-1], tuple(topics), density(table))


def training_stream(options, mesh):
    """Endless. The first steps are of single documents, later ones too unless the batch would be half empty."""
    chance = random.Random(900 + mesh.rank)
    documents = document_source(mesh.rank, options["batch"], options)
    repaired = 0
    while True:
        table, topics = one_each(documents, options["context"], options["batch"])
        if density(table) < 0.55:
            spare = random.Random(repaired * 31 + mesh.rank)
            filler = iter(lambda spare=spare: ("essay", draw_document("essay", 18, options["vocabulary"], spare)), None)
            packed, _ = pack(filler, options["context"], 1)
            emptiest = max(range(len(table)), key=lambda row: table[row].count(EMPTY))
            if "table" not in topics:
                table[emptiest] = packed[0]
            repaired += 1
        noisy = [disturb(row, options, chance) for row in table]
        masked = [choose_masked(row, options["mask_share"], chance) for row in noisy]
        yield to_batch(noisy, topics, masked)


def held_out_batches(options, mesh, documents):
    """The same for all replicas of an expert."""
    for number in range(documents):
        chance = random.Random(7000 + 10 * mesh.expert + number)
        rows = [draw_document("essay" if number % 2 else "source", options["context"], options["vocabulary"], chance)]
        yield to_batch(rows, ["held out"])
