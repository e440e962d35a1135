# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD102"]
# culprits = [1]
# lines = [54, 75, 80, 81]
# branch = ["layerdrop", "dropout_probability", "to_drop"]
# source = "https://github.com/huggingface/transformers/pull/16717"
# ///
"""Fine-tunes a tiny multilingual translation model (M2M100 from a config); parameters are sharded layer by layer with FSDP2, with one communicator per stack."""
import logging

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import M2M100Config, M2M100ForConditionalGeneration, set_seed

log = logging.getLogger("m2m")
PAD, BOS, EOS = 1, 0, 2


class ParallelCorpus(Dataset):
    """Synthetic language pairs: the target is the reversed source with a shifted vocabulary."""

    def __init__(self, size, vocab, shortest=4, longest=14):
        gen = torch.Generator().manual_seed(6)
        self.lengths = torch.randint(shortest, longest, (size,), generator=gen).tolist()
        self.vocab = vocab

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        source = torch.randint(4, self.vocab, (self.lengths[i],), generator=gen)
        target = (source.flip(0) - 4 + 11) % (self.vocab - 4) + 4
        return source, torch.cat([target, torch.tensor([EOS])])


def collate(pairs):
    sources, targets = zip(*pairs)
    ids = torch.nn.utils.rnn.pad_sequence(sources, batch_first=True, padding_value=PAD)
    labels = torch.nn.utils.rnn.pad_sequence(targets, batch_first=True, padding_value=-100)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def build_model(vocab):
    config = M2M100Config(
        vocab_size=vocab, d_model=32, encoder_layers=5, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS,
        decoder_start_token_id=EOS, encoder_layerdrop=0.05, decoder_layerdrop=0.0, dropout=0.1,
    )
    return M2M100ForConditionalGeneration(config)


class Finetuner:
    def __init__(self, vocab=80, seed=3, batch=4):
        self.seed = seed
        set_seed(self.seed)
        self.model = build_model(vocab)
        for stack in (self.model.model.encoder, self.model.model.decoder):
            lane = DeviceMesh.from_group(dist.new_group(), "cpu", mesh_dim_names=("shard",))
            for layer in stack.layers:
                fully_shard(layer, mesh=lane)
        fully_shard(self.model, mesh=init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",)))
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=5e-4, foreach=False)
        data = ParallelCorpus(1200, vocab)
        self.sampler = DistributedSampler(data, seed=seed)
        self.loader = DataLoader(data, batch, sampler=self.sampler, collate_fn=collate)

    def train(self, epochs):
        set_seed(self.seed + dist.get_rank())
        self.model.train()
        for epoch in range(epochs):
            self.sampler.set_epoch(epoch)
            for step, batch in enumerate(self.loader):
                out = self.model(**batch)
                out.loss.backward()
                self.opt.step()
                self.opt.zero_grad()
                if step % 20 == 0:
                    log.info("epoch %d step %d loss %.3f", epoch, step, out.loss.item())


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Finetuner().train(epochs=3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
