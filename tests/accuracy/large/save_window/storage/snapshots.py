"""One file for the whole job: parameters, moments, and the traces of every rank."""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from optim.lion import Moments
from storage.traces import Traces
from surrogate.network import Parameters
from talk.ranks import Here


def packed(lines: list[str]) -> torch.Tensor:
    text = "\n".join(lines).encode()
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.zeros(0, dtype=torch.uint8)


def collected(lines: list[str], here: Here) -> list[list[str]]:
    """Every rank's lines, on the leading rank; nothing elsewhere."""
    if here.size == 1:
        return [lines]
    mine = packed(lines)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(here.size)]
    dist.all_gather(lengths, torch.tensor([mine.numel()]))
    longest = max(int(length) for length in lengths)
    if longest == 0:
        return []
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: mine.numel()] = mine
    rows = [torch.zeros_like(padded) for _ in range(here.size)] if here.leads else None
    dist.gather(padded, rows, dst=0)
    if rows is None:
        return []
    texts = [bytes(row[: int(length)].tolist()).decode() for row, length in zip(rows, lengths, strict=True)]
    return [text.splitlines() for text in texts]


def write_snapshot(out: Path, step: int, parameters: Parameters, moments: Moments, traces: Traces, here: Here) -> int:
    """Returns how many traces went into it. Nobody's scratch is read while another rank still writes there."""
    dist.barrier()
    lines = collected(traces.take(), here)
    if not here.leads:
        return 0
    out.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=out, suffix=".partial")
    os.close(handle)
    table = {name: value.detach() for name, value in parameters.items()}
    torch.save({"step": step, "parameters": table, "moments": moments.table}, partial)
    os.replace(partial, out / "snapshot.pt")
    count = sum(len(each) for each in lines)
    if count:
        with (out / "traces.jsonl").open("a") as file:
            for rank, each in enumerate(lines):
                file.writelines(json.dumps({"rank": rank, **json.loads(line)}) + "\n" for line in each)
    return count


def restore(out: Path, parameters: Parameters) -> int:
    """The step to go on from; 0 without a snapshot."""
    path = out / "snapshot.pt"
    if not path.exists():
        return 0
    saved = torch.load(path, weights_only=True)
    with torch.no_grad():
        for name, value in saved["parameters"].items():
            if name in parameters and parameters[name].shape == value.shape:
                parameters[name].copy_(value)
    return int(saved["step"]) + 1
