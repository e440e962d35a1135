# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["megatron"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD102"]
# culprits_any = [[0], [1, 2, 3]]
# lines = [48, 50, 51, 73, 75, 81]
# branch = ["is_moe", "for name in track_names", "track_names", "moe_layer_freq"]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/1444"
# ///
"""The first of four pipeline stages has dense layers only (moe_layer_freq 0,0 | 1,1 | ...), so its table of auxiliary
losses is empty.  Logging reduces each entry over the pipeline group, and stage 0 has nothing to reduce."""
import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.moe_utils import (
    clear_aux_losses_tracker,
    reduce_aux_losses_tracker_across_ranks,
    save_to_aux_losses_tracker,
)
from torch import nn

LAYERS, HIDDEN = 8, 16
MOE_LAYER_FREQ = [0, 0, 1, 1, 1, 1, 1, 1]


class Layer(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number
        self.is_moe = bool(MOE_LAYER_FREQ[number - 1])
        self.experts = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(4 if self.is_moe else 1))
        self.gate = nn.Linear(HIDDEN, len(self.experts))

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        out = sum(p.unsqueeze(-1) * e(x) for p, e in zip(probs.unbind(-1), self.experts))
        self.aux_loss = (probs.mean(0) ** 2).sum() * len(self.experts)
        return x + out


class Stage(nn.Module):
    def __init__(self, rank, size):
        super().__init__()
        per = LAYERS // size
        self.layers = nn.ModuleList(Layer(rank * per + i + 1) for i in range(per))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            if layer.is_moe:
                save_to_aux_losses_tracker("load_balancing_loss", layer.aux_loss, layer.number, LAYERS)
        return x


class Pretrain:
    def __init__(self, log_interval=4):
        self.group = parallel_state.get_pipeline_model_parallel_group()
        self.rank = parallel_state.get_pipeline_model_parallel_rank()
        self.size = parallel_state.get_pipeline_model_parallel_world_size()
        self.stage = Stage(self.rank, self.size)
        self.log_interval = log_interval

    def forward_step(self):
        x = torch.randn(6, HIDDEN)
        if self.rank > 0:
            torch.distributed.recv(x, src=self.rank - 1, group=self.group)
        y = self.stage(x)
        if self.rank < self.size - 1:
            torch.distributed.send(y.detach(), dst=self.rank + 1, group=self.group)
        return y

    def log(self, step):
        reduce_aux_losses_tracker_across_ranks()
        clear_aux_losses_tracker()
        torch.distributed.barrier()

    def run(self, steps):
        for step in range(1, steps + 1):
            self.forward_step()
            if step % self.log_interval == 0:
                self.log(step)


def main():
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=4)
    torch.manual_seed(1 + torch.distributed.get_rank())
    Pretrain().run(20)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
