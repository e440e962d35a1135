"""Whether there is a CUDA device to test on, and how the programs here are run."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
TIME_OUT_SECONDS = 20
"""Of the calls in the programs that wait for PyTorch's watchdog."""


@functools.cache
def missing() -> str:
    """Why nothing can be tested here; '' where a device is. Without a driver not even torch is imported."""
    if shutil.which("nvidia-smi") is None:
        return "no nvidia-smi"
    code = "import sys, torch; sys.exit(not (torch.cuda.is_available() and torch.distributed.is_nccl_available()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    return "" if found.returncode == 0 else "torch has no CUDA device with NCCL"


def command(program: str, *arguments: str, ranks: int) -> list[str]:
    """The launch of a program here."""
    torchrun = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"
    return [torchrun, "--standalone", "--nproc-per-node", str(ranks), str(PROGRAMS / program), *arguments]


def variables(dumps: Path, *, timing: bool = False) -> dict[str, str]:
    """The environment of a job that leaves small dumps in ``dumps`` when a call times out."""
    return {
        "TORCH_FR_BUFFER_SIZE": "64",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_FR_DUMP_TEMP_FILE": f"{dumps}{os.sep}trace_",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{dumps}{os.sep}ask_",
        "TORCH_NCCL_ENABLE_TIMING": "1" if timing else "0",
        "HANG_SECONDS": str(TIME_OUT_SECONDS),
    }
