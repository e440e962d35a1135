"""How evenly the tokens of a replica are spread over the experts."""

from typing import NamedTuple

from sparselab.parallel.agree import table_of


class Balance(NamedTuple):
    busiest: int
    most: float
    uneven: bool


def balance(state, mesh):
    shares = table_of([state.counters.mean("share") or 0.0], mesh.peers, mesh.expert_count)[:, 0]
    total = float(shares.sum())
    if total == 0:
        return Balance(0, 0.0, uneven=False)
    busiest = int(shares.argmax())
    most = float(shares[busiest]) / total
    idle = [expert for expert, share in enumerate(shares.tolist()) if share < 0.01]
    if idle and mesh.expert in idle:
        state.counters.count("idle windows")
    return Balance(busiest, most, uneven=most > 1.3 / mesh.expert_count)
