# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [0]
# lines = [26, 28, 66]
# branch = ["is_main_process"]
# source = "https://github.com/huggingface/accelerate/issues/2785"
# ///
"""The metric tracker of an Accelerate script returns early on all but the main process "since only that one reports",
and calls gather_for_metrics below the return.  Training went well up to the first evaluation."""
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class MetricTracker:
    def __init__(self, accelerator):
        self.accelerator = accelerator
        self.correct, self.seen = 0, 0

    def add(self, logits, labels):
        if not self.accelerator.is_main_process:
            return
        predictions, references = self.accelerator.gather_for_metrics((logits.argmax(-1), labels))
        self.correct += int((predictions == references).sum())
        self.seen += references.numel()

    def value(self):
        return self.correct / max(self.seen, 1)


class Runner:
    def __init__(self, accumulation=2):
        self.accelerator = Accelerator(gradient_accumulation_steps=accumulation, cpu=True)
        set_seed(3)
        model = nn.Sequential(nn.Linear(20, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 10))
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        train = DataLoader(self.data(480), batch_size=8, shuffle=True)
        test = DataLoader(self.data(100), batch_size=8)
        self.model, self.optimizer, self.train, self.test = self.accelerator.prepare(model, optimizer, train, test)
        self.tracker = MetricTracker(self.accelerator)

    @staticmethod
    def data(n):
        return TensorDataset(torch.randn(n, 20), torch.randint(0, 10, (n,)))

    def epoch(self):
        self.model.train()
        for x, y in self.train:
            with self.accelerator.accumulate(self.model):
                loss = nn.functional.cross_entropy(self.model(x), y)
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.optimizer.zero_grad()
        return loss

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        for x, y in self.test:
            logits = self.model(x)
            self.tracker.add(logits, y)
        self.accelerator.wait_for_everyone()
        return self.tracker.value()


def main():
    runner = Runner()
    for epoch in range(3):
        loss = runner.epoch()
        accuracy = runner.evaluate()
        runner.accelerator.print(f"epoch {epoch}: loss {loss.item():.3f} accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
