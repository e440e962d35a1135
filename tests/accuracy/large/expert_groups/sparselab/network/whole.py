"""The whole network, and which of its parameters are whose."""

import torch
from torch import nn

from sparselab.network.experts import Adapter, apply_adapter
from sparselab.network.layers import DenseBlock
from sparselab.network.router import hash_table, route


class Network(nn.Module):
    def __init__(self, options):
        super().__init__()
        width = options["width"]
        self.options = options
        self.embedding = nn.Embedding(options["vocabulary"], width)
        self.blocks = nn.ModuleList(
            DenseBlock(width, last=number == options["blocks"] - 1) for number in range(options["blocks"])
        )
        self.adapter = Adapter(width, options["adapter_width"])
        self.output = None if options["tied"] else nn.Linear(width, options["vocabulary"], bias=False)
        self.register_buffer("table", hash_table(options["vocabulary"], options["experts"]))
        if options["freeze_embedding"]:
            self.embedding.weight.requires_grad_(False)

    def forward(self, batch, expert):
        """Scores, and how the tokens were routed."""
        hidden = self.embedding(batch.inputs)
        taken = None
        for number, block in enumerate(self.blocks):
            hidden = block(hidden, batch.present)
            if number == 0:
                taken = route(
                    batch.inputs,
                    batch.present,
                    self.table,
                    expert,
                    self.options["route_floor"],
                    self.options["capacity"],
                )
                hidden = apply_adapter(self.adapter, hidden, taken)
        if self.output is not None:
            return self.output(hidden), taken
        return hidden @ self.embedding.weight.t(), taken


def build_network(options):
    network = Network(options)
    for parameter in network.parameters():
        if parameter.dim() == 2 and parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1)
    return network


def split_parameters(network):
    """Those that all ranks share, and those of the expert, whose replicas alone share them."""
    trained = [(name, parameter) for name, parameter in network.named_parameters() if parameter.requires_grad]
    dense = [parameter for name, parameter in trained if not name.startswith("adapter")]
    sparse = [parameter for name, parameter in trained if name.startswith("adapter")]
    if not sparse:
        raise ValueError("the network has no expert")
    return dense, sparse


def loss_of(scores, targets):
    """Mean loss over the targets that count; a zero that has a gradient where none does."""
    if not bool((targets != -100).any()):
        return scores.sum() * 0.0
    return torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten(), ignore_index=-100)
