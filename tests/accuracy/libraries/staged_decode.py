# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD202", "HD102"]
# culprits = [2]
# lines = [90, 84, 55]
# branch = ["tok in self.stop_ids", "range(self.limit)"]
# source = "https://github.com/exo-explore/exo/issues/1793"
# ///
"""Greedy decoding of a few prompts with a model cut into four pipeline stages, one stage a host."""
import json
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("staged")
VOCAB, WIDTH = 48, 32
FLEET = [
    {"host": "atlas", "snapshot": "4be1"},
    {"host": "boreas", "snapshot": "4be1"},
    {"host": "circe", "snapshot": "0d97"},
    {"host": "dione", "snapshot": "4be1"},
]
HUB = {
    "0d97": {"eos_token_id": 2, "max_new_tokens": 64},
    "4be1": {"eos_token_id": [2, 41], "max_new_tokens": 64},
}


@dataclass
class Request:
    rid: str
    prompt: list[int]


def local_snapshot(entry: dict) -> Path:
    """The host's own model folder, as the sync job left it there."""
    root = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "hosts" / entry["host"] / entry["snapshot"]
    root.mkdir(parents=True, exist_ok=True)
    (root / "generation_config.json").write_text(json.dumps(HUB[entry["snapshot"]]))
    return root


class Stage:
    def __init__(self, index: int, count: int, folder: Path):
        self.index, self.count = index, count
        cfg = json.loads((folder / "generation_config.json").read_text())
        eos = cfg["eos_token_id"]
        self.stop_ids = set(eos if isinstance(eos, list) else [eos])
        self.limit = cfg["max_new_tokens"]
        gen = torch.Generator().manual_seed(100 + index)
        self.weight = torch.randn(WIDTH, WIDTH, generator=gen) / WIDTH**0.5
        self.embed = torch.randn(VOCAB, WIDTH, generator=gen) if index in (0, count - 1) else None
        self.first, self.last = index == 0, index == count - 1

    def step(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.tanh(hidden @ self.weight)

    def sample(self, hidden: torch.Tensor, position: int) -> int:
        logits = hidden @ self.embed.T
        logits[2] = -1e4
        logits[41] += 0.9 * position  # turn end grows likelier with length
        return int(logits.argmax())

    def header(self, token: int | None) -> int:
        """The token of this round travels ahead of its hidden state."""
        box = torch.tensor([token if token is not None else 0])
        if not self.first:
            dist.recv(box, src=self.index - 1)
        if not self.last:
            dist.send(box, dst=self.index + 1)
        return int(box)

    def decode(self, req: Request) -> int:
        token, rounds = req.prompt[-1], 0
        for position in range(self.limit):
            tok = self.header(token)
            if tok in self.stop_ids:
                break
            if self.first:
                hidden = self.embed[tok]
            else:
                hidden = torch.empty(WIDTH)
                dist.recv(hidden, src=self.index - 1)
            hidden = self.step(hidden)
            if self.last:
                token = self.sample(hidden, position)
                dist.send(torch.tensor([token]), dst=0)
            else:
                dist.send(hidden, dst=self.index + 1)
            if self.first:
                nxt = torch.empty(1, dtype=torch.long)
                dist.recv(nxt, src=self.count - 1)
                token = int(nxt)
            rounds += 1
        return rounds


def serve(stage: Stage, requests: list[Request]) -> None:
    for req in requests:
        rounds = stage.decode(req)
        lengths = [None] * stage.count
        dist.all_gather_object(lengths, rounds)
        if stage.first:
            log.info("%s: %s rounds", req.rid, lengths)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    stage = Stage(rank, dist.get_world_size(), local_snapshot(FLEET[rank]))
    log.info("stage %d on %s ready", rank, FLEET[rank]["host"])
    serve(stage, [Request(f"req-{i}", [3 + i, 7, 11]) for i in range(6)])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
