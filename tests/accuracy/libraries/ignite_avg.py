# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["ignite"]
# outcome = "hang"
# causes_any = ["HD109", "HD303"]
# culprits = [0]
# lines = [44, 55, 56]
# branch = ["get_rank() == 0", "rank == 0", "is_main"]
# source = "https://github.com/pytorch/ignite/issues/659"
# ///
"""A running average of the loss is attached for the progress line, which only the main process prints.
ignite's RunningAverage reduces over all ranks after every iteration, so rank 0 reduces alone."""
import ignite.distributed as idist
import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.metrics import RunningAverage
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset


class Progress:
    """The console of the project."""

    def __init__(self, every):
        self.every = every

    def attach(self, engine):
        RunningAverage(output_transform=lambda out: out["loss"], alpha=0.9).attach(engine, "loss")
        engine.add_event_handler(Events.ITERATION_COMPLETED(every=self.every), self.show)

    def show(self, engine):
        print(engine.state.iteration, engine.state.metrics["loss"], flush=True)


class Update:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def __call__(self, engine, batch):
        self.optimizer.zero_grad()
        loss = self.model(batch[0]).square().mean()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}


def is_main():
    return dist.get_rank() == 0


def build(model):
    engine = Engine(Update(model, torch.optim.SGD(model.parameters(), lr=0.05)))
    if is_main():
        Progress(every=5).attach(engine)
    return engine


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2)))
    data = DataLoader(TensorDataset(torch.randn(120, 6)), batch_size=6)
    build(model).run(data, max_epochs=4)
    idist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
