"""How fast to learn, and when to slow down."""

import math
from collections import namedtuple

Rate = namedtuple("Rate", "now best waited cuts")


def begin(rate):
    return Rate(rate, float("inf"), 0, 0)


def in_epoch(rate, step, steps, epoch, warm_epochs):
    """The rate of one step: rising while it is warm-up."""
    if epoch >= warm_epochs:
        return rate.now
    done = (epoch * steps + step + 1) / (warm_epochs * steps)
    return rate.now * done if done < 1 else rate.now


def after_epoch(rate, loss, patience=1, least=0.02):
    """Halve the rate where the loss, which all ranks share, has not fallen for a while."""
    if math.isnan(loss):
        return rate
    if loss < rate.best - 1e-3:
        return rate._replace(best=loss, waited=0)
    if rate.waited < patience:
        return rate._replace(waited=rate.waited + 1)
    slower = rate.now / 2 if rate.now / 2 >= least else least
    return rate._replace(now=slower, waited=0, cuts=rate.cuts + 1)
