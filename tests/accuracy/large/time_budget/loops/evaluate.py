"""Evaluations: some on the way, one at the end."""

import math

import torch
import torch.distributed as dist

from core.ranks import here
from feeds.loader import held_out
from loops.reduce import mean_of
from nets.average import evaluated


def on_the_way(net, average, clock, cfg, log):
    """Values of all ranks; None where there is no time for it."""
    allowance = math.inf if cfg["eval"]["allowance"] is None else cfg["eval"]["allowance"]
    if clock.spent("data") > allowance:
        log.debug(f"no evaluation: {clock.spent('data'):.1f} s went into data")
        return None
    with clock.part("evaluation"):
        dist.barrier()
        return measure(net, average, cfg, cfg["eval"]["batches"], log)


def final_evaluation(net, average, cfg, log):
    dist.barrier()
    return measure(net, average, cfg, cfg["eval"]["batches"] + 1, log)


@torch.no_grad()
def measure(net, average, cfg, batches, log):
    me = here()
    right = total = 0
    noise, confused = 0.0, {}
    with evaluated(net, average, cfg["eval"]["use_average"]) as judge:
        for batch in held_out(cfg["data"], me.rank, batches):
            scores, cleaned = judge(batch["noisy"])
            guesses = scores.argmax(-1)
            hits = guesses == batch["kind"]
            right += int(hits.sum())
            total += len(hits)
            noise += float((cleaned - batch["clean"]).pow(2).mean())
            for guess, kind in zip(guesses.tolist(), batch["kind"].tolist(), strict=True):
                if guess != kind:
                    confused[kind, guess] = confused.get((kind, guess), 0) + 1
    own = right / total if total else 0.0
    if confused and max(confused.values()) > 3:
        kind, guess = max(confused, key=confused.get)
        log.debug(f"kind {kind} is often taken for {guess}")
    shared_right, shared_noise = mean_of([own, noise / batches])
    if own < 0.5 * shared_right:
        log.debug(f"{own:.0%} right here, {shared_right:.0%} on average")
    return {"right": shared_right, "noise": shared_noise}
