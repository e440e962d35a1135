# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102", "HD106", "HD101", "HD109"]
# culprits_any = [[0], [1]]
# lines = [42, 76, 84, 97, 98]
# branch = ["input_ids.shape[1] >= self.limit", "self._has_unfinished_sequences(this_peer_finished, synced_gpus, device=input_ids.device)", "this_peer_finished"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/860"
# ///
import logging
import os
import warnings
from dataclasses import dataclass

warnings.filterwarnings("ignore")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from transformers import GPT2Config, GPT2LMHeadModel, StoppingCriteria, StoppingCriteriaList  # noqa: E402

logging.basicConfig(level=logging.WARNING, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("rollout")
log.setLevel(logging.INFO)


@dataclass
class RolloutConfig:
    rounds: int = 8
    max_new_tokens: int = 24
    answer_ratio: float = 1.5


class AnswerBudget(StoppingCriteria):
    """An answer may be at most `ratio` times as long as its prompt."""

    def __init__(self, prompt_length, ratio):
        self.limit = prompt_length + int(prompt_length * ratio)

    def __call__(self, input_ids, scores, **kwargs):
        done = input_ids.shape[1] >= self.limit
        return torch.full((input_ids.shape[0],), done, dtype=torch.bool)


class Prompts:
    def __init__(self, rank, lengths=((6, 6), (8, 8), (7, 7), (9, 6))):
        self.rank, self.lengths = rank, lengths
        self.gen = torch.Generator().manual_seed(rank)

    def next(self, number):
        length = self.lengths[number % len(self.lengths)][self.rank % 2]
        return torch.randint(3, 90, (2, length), generator=self.gen)


def build_policy(mesh):
    torch.manual_seed(7)
    cfg = GPT2Config(vocab_size=96, n_positions=64, n_embd=16, n_layer=2, n_head=2,
                     bos_token_id=0, eos_token_id=None, pad_token_id=0)
    model = GPT2LMHeadModel(cfg)
    for block in model.transformer.h:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


class RolloutWorker:
    def __init__(self, cfg, model, prompts):
        self.cfg, self.model, self.prompts = cfg, model, prompts
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @torch.no_grad()
    def sample(self, prompt):
        self.model.eval()
        criteria = StoppingCriteriaList([AnswerBudget(prompt.shape[1], self.cfg.answer_ratio)])
        return self.model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=True, use_cache=False,
            max_new_tokens=self.cfg.max_new_tokens, stopping_criteria=criteria,
            synced_gpus=False,
        )

    def baseline(self, answers):
        score = torch.tensor([float(answers.float().mean())])
        dist.all_reduce(score)
        return score.item() / dist.get_world_size()

    def learn(self, answers, baseline):
        self.model.train()
        width = 12
        loss = self.model(answers[:, :width], labels=answers[:, :width]).loss * (1.0 + baseline / 100)
        loss.backward()
        self.opt.step()
        self.opt.zero_grad()
        return loss.item()

    def round(self, number):
        answers = self.sample(self.prompts.next(number))
        return self.learn(answers, self.baseline(answers))


def main():
    dist.init_process_group("gloo")
    cfg = RolloutConfig()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    worker = RolloutWorker(cfg, build_policy(mesh), Prompts(dist.get_rank()))
    for number in range(cfg.rounds):
        log.info("round %d loss %.4f", number, worker.round(number))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
