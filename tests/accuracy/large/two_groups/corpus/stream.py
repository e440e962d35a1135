"""An endless stream of batches of masked tokens."""

import random

import torch

from corpus.shards import useful, volume
from corpus.vocabulary import MASK, PAD, is_special


class Stream:
    """Batches of the documents of one volume, in order, over and over."""

    def __init__(self, documents, config, seed):
        self.documents = documents
        self.config = config
        self.source = random.Random(seed)
        self.at = 0
        self.rounds = 0
        self.padded = 0

    def __iter__(self):
        return self

    def __next__(self):
        rows = []
        while len(rows) < self.config["batch"]:
            if self.at >= len(self.documents):
                self.at = 0
                self.rounds += 1
            rows.append(self.documents[self.at])
            self.at += 1
        return self.masked(rows)

    def masked(self, rows):
        """(inputs, targets), both (batch, length); targets are -100 where nothing is asked."""
        length = self.config["length"]
        inputs = torch.full((len(rows), length), PAD)
        targets = torch.full((len(rows), length), -100)
        for row, document in enumerate(rows):
            asked = 0
            for at, token in enumerate(document[:length]):
                inputs[row, at] = token
                if self.source.random() < self.config["mask"] and not is_special(token):
                    targets[row, at] = token
                    inputs[row, at] = MASK if self.source.random() < 0.8 else token
                    asked += 1
            if not asked:
                # A row that asks for nothing teaches nothing.
                targets[row, 0] = document[0]
            if len(document) < length:
                self.padded += length - len(document)
        return inputs, targets


def build_stream(config, rank, size):
    if config["documents"] < config["batch"]:
        raise SystemExit("a volume has fewer documents than a batch")
    documents = useful(volume(rank, config), config["shortest"])
    return Stream(documents, config, seed=size * 100 + rank)
