# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/huggingface/accelerate/issues/2785"
# ///
"""Rank 0 evaluates alone with generate() for half a minute while the others wait in a barrier, properly."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from transformers import LlamaConfig, LlamaForCausalLM
import time


def make_model():
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=4096, pad_token_id=0, bos_token_id=1, eos_token_id=2))


@torch.no_grad()
def evaluate(model, seconds):
    model.eval()
    end, lengths = time.monotonic() + seconds, []
    while time.monotonic() < end:
        out = model.generate(torch.randint(3, 128, (2, 8)), max_new_tokens=200, do_sample=True)
        lengths.append(out.shape[1])
    model.train()
    return sum(lengths) / len(lengths)


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank = dist.get_rank()
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    for epoch in range(2):
        for _ in range(5):
            ids = torch.randint(3, 128, (2, 16))
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        if epoch == 0 and rank == 0:
            print("mean length", evaluate(model.module, 30))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
