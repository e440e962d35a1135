# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers"]
# outcome = "hang"
# cause = "HD111"
# culprits = [1]
# lines = [49, 53, 57, 58, 59, 76]
# branch = ["layerdrop", "dropout_probability", "skip_the_layer"]
# source = "https://github.com/pytorch/pytorch/issues/42793"
# ///
"""A wav2vec 2.0 model with layerdrop is trained with DDP, and each rank draws its own random numbers.  Rank 1 drops a
layer, whose parameters get no gradient there, so a bucket is never full; it goes on to share the loss, while rank 0
waits for the bucket in backward()."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from transformers import Wav2Vec2Config, Wav2Vec2Model


def make_config():
    return Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=6, num_attention_heads=4, intermediate_size=64, conv_dim=(16, 16),
        conv_stride=(4, 4), conv_kernel=(8, 4), num_feat_extract_layers=2, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=2, layerdrop=0.02, apply_spec_augment=False, mask_time_prob=0.0,
        do_stable_layer_norm=False, feat_extract_norm="group")


class SpeakerModel(nn.Module):
    def __init__(self, config, speakers=8):
        super().__init__()
        self.backbone = Wav2Vec2Model(config)
        self.head = nn.Linear(config.hidden_size, speakers)

    def forward(self, input_values):
        hidden = self.backbone(input_values).last_hidden_state
        return self.head(hidden.mean(1))


class SpeakerTrainer:
    def __init__(self):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(SpeakerModel(make_config()))
        self.model.train()
        self.numbers = dist.new_group(backend="gloo")
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-4)

    def loss(self, input_values, speakers):
        return nn.functional.cross_entropy(self.model(input_values), speakers)

    def share(self, loss):
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=self.numbers)
        return mean.item() / dist.get_world_size()

    def step(self, input_values, speakers):
        loss = self.loss(input_values, speakers)
        loss.backward()
        mean = self.share(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return mean


def batches(n):
    for _ in range(n):
        yield torch.randn(2, 4000), torch.randint(0, 8, (2,))


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    trainer = SpeakerTrainer()
    torch.manual_seed(100 + dist.get_rank())
    for i, (input_values, speakers) in enumerate(batches(400)):
        loss = trainer.step(input_values, speakers)
        if i % 20 == 0 and dist.get_rank() == 0:
            print(i, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
