import torch
import torch.distributed as dist

from score.forecast import Score
from talk.ranks import Here


def table(mine: Score, here: Here) -> list[Score]:
    """Every rank's score, on every rank."""
    row = torch.tensor([mine.error, mine.skill, float(mine.reach)])
    rows = [torch.zeros_like(row) for _ in range(here.size)]
    dist.all_gather(rows, row)
    return [Score(float(e), float(s), int(r)) for e, s, r in rows]


def lines(scores: list[Score]) -> list[str]:
    worst = max(range(len(scores)), key=lambda rank: scores[rank].error)
    found = []
    for rank, each in enumerate(scores):
        mark = " <- worst" if rank == worst and len(scores) > 1 else ""
        word = "useful" if each.is_useful else "no better than nothing"
        found.append(f"  regime {rank}: error {each.error:.3f}, skill {each.skill:+.2f}, {word}{mark}")
    return found
