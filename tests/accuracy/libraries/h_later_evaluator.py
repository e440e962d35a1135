# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "healthy"
# causes_any = []
# culprits = []
# lines = []
# watch = "--give-up-after 10"
# source = "own"
# ///
"""Three ranks train, the fourth evaluates checkpoints: it polls for them, and the trainers poll for its verdict before the next phase."""
import json
import logging
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

log = logging.getLogger("phases")
TRAINERS = (0, 1, 2)
EVALUATOR = 3
PHASES = 2
TRAIN_SECONDS, EVAL_SECONDS = 8.0, 13.0


class Board:
    """Files by which trainers and evaluator tell each other how far they are."""

    def __init__(self, root):
        self.root = Path(root)
        self.root.mkdir(parents=True, exist_ok=True)

    def post(self, name, payload):
        partial = self.root / f".{name}.part"
        partial.write_text(json.dumps(payload))
        partial.rename(self.root / f"{name}.json")

    def await_note(self, name, poll=0.25):
        note = self.root / f"{name}.json"
        while not note.exists():
            time.sleep(poll)
        return json.loads(note.read_text())


class Trainer:
    def __init__(self, board, group, rank):
        self.board, self.group, self.rank = board, group, rank
        self.weights = torch.zeros(256)
        self.rate = 0.5
        self.gen = torch.Generator().manual_seed(rank)

    def phase(self, number):
        started, go_on, steps = time.monotonic(), torch.ones(1), 0
        while go_on.item():
            x = torch.randn(512, 256, generator=self.gen)
            y = x @ torch.linspace(-1, 1, 256)
            gradient = x.t() @ (x @ self.weights - y) / len(x)
            dist.all_reduce(gradient, group=self.group)
            self.weights -= self.rate * gradient / len(TRAINERS)
            steps += 1
            go_on[0] = float(time.monotonic() - started < TRAIN_SECONDS)
            dist.broadcast(go_on, src=TRAINERS[0], group=self.group)
        if self.rank == TRAINERS[0]:
            self.board.post(f"checkpoint_{number}", {"weights": self.weights.tolist(), "steps": steps})
        verdict = self.board.await_note(f"verdict_{number}")
        self.rate *= verdict["rate_factor"]
        dist.barrier(group=self.group)
        log.info("phase %d: %d steps, error %.2e", number, steps, verdict["error"])


class Evaluator:
    """Bootstraps the error of a checkpoint for a fixed time."""

    def __init__(self, board):
        self.board = board
        self.gen = torch.Generator().manual_seed(99)

    def phase(self, number):
        checkpoint = self.board.await_note(f"checkpoint_{number}")
        weights = torch.tensor(checkpoint["weights"])
        until, errors = time.monotonic() + EVAL_SECONDS, []
        while time.monotonic() < until:
            x = torch.randn(1024, 256, generator=self.gen)
            errors.append((x @ weights - x @ torch.linspace(-1, 1, 256)).pow(2).mean())
        error = torch.stack(errors).mean().item()
        self.board.post(f"verdict_{number}", {"error": error, "rate_factor": 0.7 if error < 1e-3 else 1.0})
        log.info("phase %d: %d bootstrap rounds", number, len(errors))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[{rank}] %(asctime)s %(message)s")
    board = Board(Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"board-{os.environ['MASTER_PORT']}")
    group = dist.new_group(list(TRAINERS))
    role = Trainer(board, group, rank) if rank in TRAINERS else Evaluator(board)
    for number in range(PHASES):
        role.phase(number)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
