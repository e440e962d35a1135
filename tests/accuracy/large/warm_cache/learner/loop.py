"""Epochs and batches."""

import logging
import time
from collections import namedtuple

import torch
from torch.nn import functional

from comm import sums
from evaluate import counts
from learner import rates
from learner import weights as tensors
from sampling import plans

log = logging.getLogger("tickets.loop")

Result = namedtuple("Result", "weights losses checks hard seconds cuts")


def hard_rows(weights, table, most=12):
    """Rows of this rank that are still wrong, those with the largest loss first."""
    with torch.no_grad():
        scores = tensors.logits(weights, table.values)
        losses = functional.cross_entropy(scores, table.labels, reduction="none")
    wrong = (scores.argmax(1) != table.labels).nonzero().flatten().tolist()
    if len(wrong) > most:
        wrong = sorted(wrong, key=lambda row: -float(losses[row]))[:most]
    return wrong


def one_batch(weights, table, rows, place):
    loss = functional.cross_entropy(tensors.logits(weights, table.values[rows]), table.labels[rows])
    loss.backward()
    sums.mean_of([each.grad for each in weights.values() if each.grad is not None], place.size)
    return loss.item()


def learn(train, valid, opts, place):
    """The averaged weights after all epochs, and how it went."""
    settings, seed = opts["learn"], opts["run"]["seed"]
    weights = tensors.start(train.width, settings["hidden"], train.kinds, seed)
    average, rate = {}, rates.begin(settings["rate"])
    # All ranks have as many batches as the one with the most rows.
    batches = sums.most(-(-len(train.values) // settings["batch"]), place.size)
    labels = train.labels.tolist()
    losses, checks, hard, slowest, began = [], [], [], 0.0, time.monotonic()
    for epoch in range(settings["epochs"]):
        local = []
        draw = 1000 * seed + 10 * epoch + place.rank
        plan = plans.epoch(labels, batches, settings["batch"], settings, draw, hard)
        for step, rows in enumerate(plan):
            mark = time.monotonic()
            loss = one_batch(weights, train, rows, place)
            if not local or loss < min(local):
                log.debug("epoch %d step %d: lowest loss so far %.3f", epoch, step, loss)
            local.append(loss)
            now = rates.in_epoch(rate, step, len(plan), epoch, settings["warm_epochs"])
            tensors.step(weights, now, settings["decay"])
            tensors.slide(average, weights, settings["average"])
            spent = time.monotonic() - mark
            slowest = max(slowest, spent)
        hard = hard_rows(weights, train)
        loss, check = counts.check(average, valid, place)
        rate = rates.after_epoch(rate, loss)
        losses.append(sum(local) / len(local))
        checks.append(check)
        if place.rank == 0:
            log.info("epoch %d: loss %.3f here, check %.3f, %d hard rows", epoch, losses[-1], check, len(hard))
    if slowest > 0.2:
        log.debug("the slowest step took %.2f s", slowest)
    return Result(average, losses, checks, hard, time.monotonic() - began, rate.cuts)
