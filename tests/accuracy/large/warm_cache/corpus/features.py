"""Text to rows of hashed n-grams."""

import math
import zlib

import torch


def tokens(text, settings):
    words = text.lower().split() if settings["lower"] else text.split()
    kept = [word for word in words if word not in settings["stop"]]
    return kept[: settings["longest"]] if len(kept) > settings["longest"] else kept


def ngrams(words, sizes):
    for size in sizes:
        for start in range(len(words) - size + 1):
            yield " ".join(words[start : start + size])


def bucket(gram, count):
    return zlib.crc32(gram.encode()) % count


def document_weights(tickets, settings):
    """The weight of each bucket: ones, or the logarithm of how rare it is."""
    count = settings["buckets"]
    if settings["weighting"] != "tfidf":
        return [1.0] * count
    seen = [0] * count
    for ticket in tickets:
        words = tokens(ticket.text, settings)
        for each in {bucket(gram, count) for gram in ngrams(words, settings["ngrams"])}:
            seen[each] += 1
    return [math.log((1 + len(tickets)) / (1 + number)) + 1 for number in seen]


def row_of(text, settings, weights):
    """A row of length one, or None for a text without any word."""
    row = torch.zeros(settings["buckets"])
    words = tokens(text, settings)
    if not words:
        return None
    for gram in ngrams(words, settings["ngrams"]):
        at = bucket(gram, settings["buckets"])
        if settings["weighting"] == "binary":
            row[at] = 1.0
        else:
            row[at] += weights[at]
    norm = float(row.norm())
    return row / norm if norm > 0 else row
