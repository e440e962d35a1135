# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD103", "HD102", "HD101", "HD106"]
# culprits = [1]
# lines = [57, 74, 77, 78, 79, 84, 91, 105]
# branch = ["except RuntimeError as err", "RuntimeError", "except RuntimeError"]
# source = "https://github.com/facebookresearch/fairseq/issues/708"
# ///
import logging
import os
import warnings

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
from lightning.fabric import Fabric  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("translate")


class Sentences(Dataset):
    """Sentences with their lengths, as the tokenizer's index file gives them."""

    def __init__(self, n=96, vocab=50):
        self.gen = torch.Generator().manual_seed(6)
        self.lengths = torch.randint(4, 12, (n,), generator=self.gen).tolist()
        self.lengths[31] = 1 << 25
        self.tokens = torch.randint(1, vocab, (n, 12), generator=self.gen)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return self.tokens[i], self.lengths[i]


def collate(rows):
    return torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows])


class Encoder(nn.Module):
    def __init__(self, vocab=50, dim=24):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.mix = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, vocab)

    def causal_mask(self, lengths):
        longest = int(lengths.max())
        return torch.ones(longest, longest, dtype=torch.float64).tril()

    def forward(self, tokens, lengths):
        mask = self.causal_mask(lengths)
        width = min(tokens.shape[1], mask.shape[0])
        x = self.emb(tokens[:, :width])
        weight = mask[:width, :width].float()
        x = (weight / weight.sum(1, keepdim=True)) @ torch.tanh(self.mix(x))
        return self.out(x)


class SafeStep:
    """One update; a batch that does not fit into memory is left out."""

    def __init__(self, fabric, model, opt):
        self.fabric, self.model, self.opt = fabric, model, opt
        self.skipped = 0

    def __call__(self, tokens, lengths):
        try:
            logits = self.model(tokens, lengths)
            width = logits.shape[1]
            loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:width].flatten())
            self.fabric.backward(loss)
        except RuntimeError as err:
            if "allocate" not in str(err):
                raise
            self.skipped += 1
            self.opt.zero_grad()
            log.warning("ran out of memory with %d tokens, skipping the batch", int(lengths.sum()))
            return None
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()


def run_epoch(fabric, loader, step):
    losses = [step(tokens, lengths) for tokens, lengths in loader]
    return [x for x in losses if x is not None]


def main():
    fabric = Fabric(accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    fabric.seed_everything(12)
    model = Encoder()
    model, opt = fabric.setup(model, torch.optim.Adam(model.parameters(), lr=3e-3))
    loader = fabric.setup_dataloaders(DataLoader(Sentences(), batch_size=4, collate_fn=collate))
    step = SafeStep(fabric, model, opt)
    for epoch in range(4):
        losses = run_epoch(fabric, loader, step)
        fabric.barrier()
        log.info("epoch %d loss %.4f (%d skipped)", epoch, sum(losses) / len(losses), step.skipped)
    fabric.barrier()


if __name__ == "__main__":
    main()
