#!/bin/bash
# Two agents of one job on one host: attempts.sh PYTHON PORT
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
agent=("$1" -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --max-restarts 2 --rdzv-id attempts
    --rdzv-backend c10d --rdzv-endpoint "127.0.0.1:$2" "$(dirname "$0")/attempts.py")
# The first has the lower pid, so its rank is 0 and has the store: it must not be the one that fails.
NODE=a "${agent[@]}" &
NODE=b "${agent[@]}" &
wait
