# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["numpy"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [0]
# lines = [61, 80, 42, 59, 81, 101]
# source = "https://github.com/google-deepmind/open_spiel/issues/318"
# ///
"""Self-play: every learner rank has two actor processes that play a board game; learners average their gradients."""
import logging
import multiprocessing as mp

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("selfplay")
BOARDS = {0: 19, 1: 5, 2: 5}
ACTORS = 2


class Board:
    def __init__(self, side: int, rng: np.random.Generator):
        self.side, self.rng = side, rng

    def play(self) -> dict:
        """One random game: all positions as planes, and the outcome."""
        grid = np.zeros((self.side, self.side), np.int8)
        states, free = [], self.rng.permutation(self.side**2)
        for turn, cell in enumerate(free[: self.side**2 * 3 // 4]):
            grid.flat[cell] = 1 if turn % 2 == 0 else -1
            states.append(grid.copy())
        return {"states": np.stack(states), "outcome": float(np.sign(grid.sum() + 0.5))}


def actor(index: int, side: int, games: "mp.Queue", stop) -> None:
    rng = np.random.default_rng(index)
    board = Board(side, rng)
    while not stop.is_set():
        games.put(board.play())
        stop.wait(0.05)
    logging.getLogger("actor").info("actor %d leaves", index)


class ActorPool:
    def __init__(self, rank: int):
        ctx = mp.get_context("fork")
        self.games, self.stop = ctx.Queue(), ctx.Event()
        self.procs = [
            ctx.Process(target=actor, args=(rank * 10 + i, BOARDS[rank], self.games, self.stop), name=f"actor-{i}")
            for i in range(ACTORS)
        ]
        for proc in self.procs:
            proc.start()

    def close(self) -> None:
        self.stop.set()
        for proc in self.procs:
            proc.join()


class Learner:
    def __init__(self, rank: int, target: int = 160):
        self.rank, self.target = rank, target
        self.pool = ActorPool(rank)
        torch.manual_seed(1)
        self.value = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))

    @staticmethod
    def summarise(game: dict) -> tuple:
        states = game["states"].astype(np.float32)
        flat = states.reshape(len(states), -1)
        feats = np.stack([flat.sum(1), flat.std(1), (flat > 0).mean(1), (flat < 0).mean(1)], 1).astype(np.float32)
        return torch.from_numpy(feats), torch.full((len(feats),), game["outcome"])

    def fill(self) -> tuple:
        xs, ys, filled = [], [], 0
        while filled < self.target:
            x, y = self.summarise(self.pool.games.get())
            xs.append(x)
            ys.append(y)
            filled += len(x)
        return torch.cat(xs)[: self.target], torch.cat(ys)[: self.target]

    def update(self) -> float:
        x, y = self.fill()
        loss = (self.value(x).squeeze(-1) - y).square().mean()
        self.value.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.value.parameters():
                dist.all_reduce(p.grad)
                p -= 0.01 * p.grad / dist.get_world_size()
        return loss.item()

    def run(self, updates: int = 6) -> None:
        for step in range(updates):
            log.info("rank %d update %d loss %.3f", self.rank, step, self.update())
        self.pool.close()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    Learner(dist.get_rank()).run()
    dist.barrier()
    log.info("rank %d: finished", dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
