"""Which tokens go to the expert of this rank."""

from typing import NamedTuple

import torch


class Route(NamedTuple):
    chosen: torch.Tensor  # bool, like the tokens
    share: float  # of the tokens that are present
    dropped: int
    used: bool


def hash_table(vocabulary, experts):
    """Expert of every token: its class, with a few tokens shared out for balance."""
    table = torch.arange(vocabulary) % experts
    shared = torch.arange(0, vocabulary, 16)
    table[shared] = (table[shared] + shared // 16) % experts
    return table


def route(tokens, present, table, expert, floor, capacity):
    """Tokens for the expert, no more than its capacity; the expert is left out where it would get next to none."""
    chosen = (table[tokens] == expert) & present
    total = int(present.sum())
    wanted = int(chosen.sum())
    limit = max(1, int(capacity * total))
    dropped = 0
    if wanted > limit:
        flat = chosen.view(-1).nonzero().view(-1)
        surplus = flat[limit:]
        chosen = chosen.clone()
        chosen.view(-1)[surplus] = False
        dropped = len(surplus)
    share = (wanted - dropped) / total if total else 0.0
    return Route(chosen, share, dropped, used=share > floor)
