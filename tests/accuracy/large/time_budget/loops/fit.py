"""The training loop."""

import math

from core.ranks import here
from core.rolling import Rolling
from loops.evaluate import on_the_way
from loops.optim import Descent
from loops.reduce import mean_grads, mean_of
from nets.objective import objective


def fit(net, loader, average, keeper, clock, cfg, log):
    """Returns how many steps were made."""
    me = here()
    descent = Descent(net, cfg["optim"], cfg["steps"])
    losses, norms = Rolling(8), Rolling(8)
    counts = {"clipped": 0, "hard": 0, "loud": 0, "odd": 0}
    best, step = None, 0
    net.train()
    for batch in loader:
        if step >= cfg["steps"]:
            break
        with clock.part("compute"):
            rare = loader.rarest() if step % 2 else None
            loss, hard = objective(net(batch["noisy"]), batch, cfg["loss"], rare)
            descent.zero()
            loss.backward()
        value = float(loss.detach())
        counts["hard"] += hard
        if not math.isfinite(value):
            counts["odd"] += 1
            log.warn(f"step {step}: the loss is {value}")
        with clock.part("exchange"):
            own_norm = mean_grads(net, me.world, cfg["reduce"]["bucket"], cfg["reduce"]["half"])
        usual = norms.mean()
        if usual is not None and own_norm > 1.3 * usual:
            counts["loud"] += 1
        norms.add(own_norm)
        _, clipped = descent.clip()
        counts["clipped"] += clipped
        descent.step()
        losses.add(value)
        if average is not None and step >= cfg["average"]["after"]:
            average.update(net)
        step += 1
        if cfg["log"]["every"] and step % cfg["log"]["every"] == 0:
            report(step, losses, counts, descent, log)
        if cfg["eval"]["every"] and step % cfg["eval"]["every"] == 0 and step < cfg["steps"]:
            found = on_the_way(net, average, clock, cfg, log)
            if found is not None and (best is None or found["right"] > best):
                best = found["right"]
                keeper.best(net, step, best)
        if keeper.due(step):
            keeper.save(net, step)
    if losses.peaks > 3 or norms.peaks > 6:
        log.debug(f"restless: {losses.peaks} peaks of the loss, {norms.peaks} of the norm")
    return step


def report(step, losses, counts, descent, log):
    """A line for all, and one of a rank that sees something unusual."""
    shared, hard = mean_of([losses.mean(), counts["hard"]])
    falls = losses.falls()
    trend = "" if falls is None else ", falling" if falls else ", not falling"
    log(f"step {step}: loss {shared:.4f}{trend}, {hard:.1f} hard, rate {descent.rate():.4f}")
    if counts["hard"] > 2 * hard and counts["loud"]:
        log.debug(f"{counts['hard']} hard samples, {counts['loud']} loud steps")
