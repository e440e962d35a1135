# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits_any = [[0], [1, 2, 3]]
# lines = [40, 67, 69, 70]
# branch = ["bar.n", "self.bar"]
# source = "https://github.com/huggingface/transformers/issues/31532"
# ///
"""accelerate without Trainer. The progress bar is shown on the main process only, and the evaluation is due by the bar's counter,
which stays at zero where the bar is disabled."""
import warnings
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm.auto import tqdm

warnings.filterwarnings("ignore")


@dataclass
class Args:
    epochs: int = 2
    eval_steps: int = 4
    lr: float = 0.05


class Evaluator:
    def __init__(self, accelerator, loader):
        self.accelerator, self.loader = accelerator, loader

    @torch.no_grad()
    def run(self, model):
        model.eval()
        hits, seen = 0, 0
        for x, y in self.loader:
            guess, truth = self.accelerator.gather_for_metrics((model(x).argmax(-1), y))
            hits, seen = hits + int((guess == truth).sum()), seen + len(truth)
        model.train()
        return hits / seen


class Finetuner:
    def __init__(self, args):
        self.args, self.accelerator = args, Accelerator(cpu=True)
        data = TensorDataset(torch.randn(160, 6), torch.randint(2, (160,)))
        model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))
        parts = self.accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=args.lr), DataLoader(data, batch_size=4),
                                         DataLoader(data, batch_size=8))
        self.model, self.optimizer, self.train_loader, evaluation = parts
        self.evaluator = Evaluator(self.accelerator, evaluation)
        total = args.epochs * len(self.train_loader)
        self.bar = tqdm(total=total, disable=not self.accelerator.is_main_process, mininterval=30)

    def train_step(self, x, y):
        loss = nn.functional.cross_entropy(self.model(x), y)
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def fit(self):
        for _ in range(self.args.epochs):
            for x, y in self.train_loader:
                self.train_step(x, y)
                self.bar.update(1)
                if self.bar.n and self.bar.n % self.args.eval_steps == 0:
                    self.evaluator.run(self.model)


def main():
    tuner = Finetuner(Args())
    tuner.fit()
    tuner.accelerator.end_training()


if __name__ == "__main__":
    main()
