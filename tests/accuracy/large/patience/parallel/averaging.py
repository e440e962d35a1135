import torch
import torch.distributed as dist

from parallel.comm import world_size


class GradientAverager:
    """Averages gradients in flat buckets of about the given size, last layers first."""

    def __init__(self, module, bucket_bytes):
        self.buckets = []
        self.missing = 0
        current, size = [], 0
        for parameter in reversed([p for p in module.parameters() if p.requires_grad]):
            nbytes = parameter.numel() * parameter.element_size()
            if current and size + nbytes > bucket_bytes:
                self.buckets.append(current)
                current, size = [], 0
            current.append(parameter)
            size += nbytes
        if current:
            self.buckets.append(current)

    def flat(self, bucket):
        parts = []
        for parameter in bucket:
            if parameter.grad is None:
                self.missing += 1
                parameter.grad = torch.zeros_like(parameter)
            parts.append(parameter.grad.reshape(-1))
        return torch.cat(parts)

    def __call__(self):
        if world_size() == 1:
            return
        for bucket in self.buckets:
            flat = self.flat(bucket)
            dist.all_reduce(flat)
            flat /= world_size()
            start = 0
            for parameter in bucket:
                stop = start + parameter.numel()
                parameter.grad.copy_(flat[start:stop].view_as(parameter))
                start = stop
