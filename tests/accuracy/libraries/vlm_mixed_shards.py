# /// hangdoc
# launch = "python"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [2]
# lines = [57, 58, 62, 89, 96]
# branch = ["pixel_values is not None", "in r for r in rows"]
# source = "https://github.com/huggingface/transformers/issues/37186"
# ///
"""Supervised fine-tuning of a small vision-language model, sharded with FSDP2, on a mixture of document scans and chat transcripts."""
import logging
import os
import tempfile

import torch
import torch._dynamo  # noqa: F401  (once, before the workers fork)
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

log = logging.getLogger("vlm-sft")
IMAGE_TOKENS = 4
VOCAB = 160


def text_config():
    return LlamaConfig(vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=64,
                       use_cache=False)


def vision_config():
    return CLIPVisionConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                            image_size=16, patch_size=8, projection_dim=32)


class DocumentVLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = CLIPVisionModel(vision_config())
        self.projector = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32))
        self.language = LlamaForCausalLM(text_config())

    def shard(self, mesh, pairs):
        fully_shard(self.tower, mesh=pairs)             # small: split in two, replicated
        fully_shard(self.projector, mesh=pairs)
        for layer in self.language.model.layers:
            fully_shard(layer, mesh=mesh)
        return fully_shard(self, mesh=mesh)

    def forward(self, input_ids, labels, pixel_values=None):
        embeds = self.language.model.embed_tokens(input_ids)
        if pixel_values is not None:
            patches = self.tower(pixel_values=pixel_values).last_hidden_state[:, 1:]
            embeds = torch.cat([self.projector(patches), embeds], dim=1)
            pad = torch.full((labels.shape[0], patches.shape[1]), -100)
            labels = torch.cat([pad, labels], dim=1)
        return self.language(inputs_embeds=embeds, labels=labels).loss


class MixtureReader:
    """Reads its slice of the sample index, in which the transcripts of the help desk lie between scans."""

    def __init__(self, world, rank, samples=96, batch=4):
        gen = torch.Generator().manual_seed(5)
        index = []
        for i in range(samples):
            rec = {"id": i, "tokens": torch.randint(3, VOCAB, (12,), generator=gen)}
            if not 65 <= i < 72:
                rec["image"] = torch.randn(3, 16, 16, generator=gen)
            index.append(rec)
        per = samples // world
        self.rows = index[rank * per:(rank + 1) * per]
        self.batch = batch

    def __iter__(self):
        for lo in range(0, len(self.rows), self.batch):
            yield collate(self.rows[lo:lo + self.batch])


def collate(rows):
    ids = torch.stack([r["tokens"] for r in rows])
    batch = {"input_ids": ids, "labels": ids.clone()}
    images = [r["image"] if "image" in r else torch.zeros(3, 16, 16) for r in rows]
    if any("image" in r for r in rows):
        batch["pixel_values"] = torch.stack(images)
    return batch


def train_epoch(model, optimizer, reader, epoch):
    for step, batch in enumerate(reader):
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.info("epoch %d step %d loss %.3f", epoch, step, loss.item())


def worker(rank, world, rendezvous):
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="%(name)s %(message)s")
    torch.manual_seed(11)
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",))
    pairs = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("replicate", "shard"))
    model = DocumentVLM().shard(mesh, pairs)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    reader = MixtureReader(world, rank)
    for epoch in range(3):
        train_epoch(model, optimizer, reader, epoch)
        dist.barrier()
    dist.destroy_process_group()


def main():
    run_dir = tempfile.mkdtemp(prefix="vlm-sft-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    mp.start_processes(worker, args=(4, os.path.join(run_dir, "rendezvous")), nprocs=4, start_method="fork")


if __name__ == "__main__":
    main()
