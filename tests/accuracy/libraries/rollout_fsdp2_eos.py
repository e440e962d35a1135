# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [0]
# lines = [86, 92, 93, 103, 118, 119]
# branch = ["self._has_unfinished_sequences(", "this_peer_finished", "unfinished_sequences", "input_ids[:, -1]", "eos_token_id"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/8321"
# ///
"""On-policy training of a small causal language model: a sharded policy writes completions, which are scored and trained on."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from transformers import GPT2Config, GPT2LMHeadModel, StoppingCriteria, StoppingCriteriaList

log = logging.getLogger("rollout")


@dataclass
class RolloutConfig:
    vocab: int = 40
    width: int = 32
    layers: int = 2
    eos: int = 7
    prompt: int = 6
    max_new_tokens: int = 24
    batch: int = 2
    rounds: int = 30
    temperature: float = 1.0


class FormatClosed(StoppingCriteria):
    """A completion is over once the closing tag has been written."""

    def __init__(self, tags, prompt_length):
        self.tags = torch.tensor(sorted(tags))
        self.prompt_length = prompt_length

    def __call__(self, input_ids, scores, **kwargs):
        done = torch.isin(input_ids[:, self.prompt_length :], self.tags).any(1)
        return done


def build_policy(cfg):
    torch.manual_seed(31)
    config = GPT2Config(
        vocab_size=cfg.vocab, n_embd=cfg.width, n_layer=cfg.layers, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=cfg.eos,
        pad_token_id=cfg.eos, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, tie_word_embeddings=False,
    )
    model = GPT2LMHeadModel(config)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    register_fsdp_forward_method(model, "generate")
    return model


class PromptStream:
    def __init__(self, cfg):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(900 + dist.get_rank())

    def __iter__(self):
        for _ in range(self.cfg.rounds):
            yield torch.randint(8, self.cfg.vocab, (self.cfg.batch, self.cfg.prompt), generator=self.gen)


class OnPolicyTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.policy = build_policy(cfg)
        self.opt = torch.optim.AdamW(self.policy.parameters(), lr=1e-3, foreach=False)
        self.stats_group = dist.new_group(backend="gloo")
        torch.manual_seed(77 + dist.get_rank())

    @torch.no_grad()
    def rollout(self, prompts):
        self.policy.eval()
        sequences = self.policy.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            do_sample=True,
            temperature=self.cfg.temperature,
            max_new_tokens=self.cfg.max_new_tokens,
            eos_token_id=self.cfg.eos,
            stopping_criteria=StoppingCriteriaList([FormatClosed({3, 4, 5, 6}, self.cfg.prompt)]),
            synced_gpus=False,
        )
        self.policy.train()
        return sequences

    def score(self, sequences):
        completions = sequences[:, self.cfg.prompt :]
        lengths = (completions != self.cfg.eos).sum(1).tolist()
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, lengths, group=self.stats_group)
        mean = sum(map(sum, everyone)) / (len(everyone) * self.cfg.batch)
        return torch.tensor([mean - n for n in lengths]), mean

    def update(self, sequences, rewards):
        logits = self.policy(sequences).logits[:, :-1]
        nll = F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten(), reduction="none").view(len(sequences), -1)
        loss = (nll.mean(1) * rewards).mean()
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def run(self):
        for number, prompts in enumerate(PromptStream(self.cfg)):
            sequences = self.rollout(prompts)
            rewards, mean = self.score(sequences)
            loss = self.update(sequences, rewards)
            log.info("round %d length %.2f loss %.4f", number, mean, loss)


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    OnPolicyTrainer(RolloutConfig()).run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
