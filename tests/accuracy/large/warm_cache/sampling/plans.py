"""Plans: the rows of each batch of an epoch, on this rank."""

import random


def by_kind(labels):
    groups = {}
    for index, label in enumerate(labels):
        groups.setdefault(label, []).append(index)
    return groups


def balanced(labels, count, chance):
    """``count`` rows in which all kinds come about equally often; rare ones come again."""
    groups = [rows[:] for _, rows in sorted(by_kind(labels).items())]
    for rows in groups:
        chance.shuffle(rows)
    chosen, turn, places = [], 0, [0] * len(groups)
    while len(chosen) < count:
        kind = turn % len(groups)
        turn += 1
        if places[kind] == len(groups[kind]):
            if chance.random() < 0.5:
                continue
            places[kind] = 0
        chosen.append(groups[kind][places[kind]])
        places[kind] += 1
    return chosen


def epoch(labels, batches, size, settings, seed, hard=()):
    """``batches`` lists of ``size`` rows. A share of each is taken from ``hard``, where there are some."""
    chance = random.Random(seed)
    count = batches * size
    if settings["balance"]:
        order = balanced(labels, count, chance)
    else:
        order = list(range(len(labels)))
        chance.shuffle(order)
        while len(order) < count:
            order += order[: count - len(order)]
    plan = []
    for start in range(0, count, size):
        rows = order[start : start + size]
        if hard and settings["hard_share"] > 0:
            places = [at for at in range(len(rows)) if chance.random() < settings["hard_share"]]
            for at in places:
                rows[at] = chance.choice(hard)
        plan.append(rows)
    return plan
