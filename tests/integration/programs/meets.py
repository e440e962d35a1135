"""Joins its group and meets the others once."""

import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    dist.barrier()
    dist.destroy_process_group()


main()
