# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torch"]
# outcome = "hang"
# causes_any = ["HD102", "HD202"]
# culprits = [2]
# lines = [40, 71, 77, 80, 81, 82]
# branch = ["self.target", "reached(", "self.best"]
# source = "https://github.com/pytorch/torchtitan/issues/775"
# ///
"""Three pipeline stages with torch.distributed.pipelining.  Only the last stage sees the loss; when it is under the
target it leaves the loop and waits in the closing barrier, while the first two send the next micro-batches."""
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

WIDTH, BATCH, MICRO = 16, 12, 4


class Part(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())
        self.head = nn.Linear(WIDTH, 1) if last else nn.Identity()

    def forward(self, x):
        return self.head(self.body(x))


class LossWatch:
    def __init__(self, target):
        self.target = target
        self.history = []

    def reached(self, losses):
        loss = torch.stack(losses).mean().item() if losses else None
        if loss is not None:
            self.history.append(loss)
        if loss is not None and loss < self.target:
            return True
        return False


class PipelineTrainer:
    def __init__(self, rank, world, max_steps):
        torch.manual_seed(rank)
        self.rank, self.world, self.max_steps = rank, world, max_steps
        self.part = Part(rank == world - 1)
        stage = PipelineStage(self.part, rank, world, torch.device("cpu"))
        self.schedule = ScheduleGPipe(stage, n_microbatches=MICRO, loss_fn=nn.functional.mse_loss)
        self.optimizer = torch.optim.SGD(self.part.parameters(), 0.05)
        self.watch = LossWatch(target=0.6)
        self.gen = torch.Generator().manual_seed(5)

    def one_step(self):
        x = torch.randn(BATCH, WIDTH, generator=self.gen)
        y = x[:, :1] * 0.5
        losses = []
        if self.rank == 0:
            self.schedule.step(x)
        elif self.rank == self.world - 1:
            self.schedule.step(target=y, losses=losses)
        else:
            self.schedule.step()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return losses

    def finish(self, step):
        dist.barrier()
        if self.rank == self.world - 1:
            print("stopped after", step, self.watch.history[-1])

    def run(self):
        step = 0
        while step < self.max_steps:
            losses = self.one_step()
            step += 1
            if self.watch.reached(losses):
                break
        self.finish(step)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    PipelineTrainer(dist.get_rank(), dist.get_world_size(), max_steps=3000).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
