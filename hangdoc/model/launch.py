"""What the environment of a rank says about where the other ranks of its job run."""

from __future__ import annotations

from collections.abc import Mapping

_COUNTS = (("LOCAL_WORLD_SIZE", "WORLD_SIZE"), ("OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE"))
NAMES_OF_A_JOB = ("WORLD_SIZE", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID")
"""Variables that all ranks of a job have in common, whatever is wrong with it."""
MEETING_NAMES = ("MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID")
"""Those that they should have in common: hosts that were given different ones never meet."""
_LOOPBACK = ("localhost", "127.", "::1")


def number(text: str | None) -> int | None:
    """A count from the environment; None for anything that is none."""
    return int(text) if text is not None and text.isdigit() and len(text) < 10 else None


def on_many_hosts(environment: Mapping[str, str], world: int = 0) -> bool:
    """True if the launcher says that other hosts take part. ``world``: the job's size, where the launcher gave none."""
    for name, of in _COUNTS:
        # Against the launcher's own count: the program may believe in another one, and that is a finding.
        local = number(environment.get(name))
        if local is not None and local < (number(environment.get(of)) or world):
            return True
    if any((number(environment.get(name)) or 1) > 1 for name in ("GROUP_WORLD_SIZE", "SLURM_NNODES")):
        return True
    node = "GROUP_RANK" if "TORCHELASTIC_RUN_ID" in environment else "NODE_RANK"
    return (number(environment.get(node)) or 0) > 0


def on_one_host(environment: Mapping[str, str]) -> bool:
    """True if the launcher says that it starts every rank of the job on this host."""
    if on_many_hosts(environment):
        return False
    counts = [(number(environment.get(local)), number(environment.get(whole))) for local, whole in _COUNTS]
    return any(local is not None and local == whole for local, whole in counts)


def shared_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables in a rank's environment that tell its job from others. torchrun's run id may be 'none'.

    Example: {'RANK': '1', 'WORLD_SIZE': '4', 'MASTER_PORT': '29500'} → {'WORLD_SIZE': '4', 'MASTER_PORT': '29500'}.
    """
    found = {name: environment.get(name, "") for name in (*NAMES_OF_A_JOB, *MEETING_NAMES)}
    return {name: value for name, value in found.items() if value and (name, value) != ("TORCHELASTIC_RUN_ID", "none")}


def is_loopback(address: str) -> bool:
    """True if only processes of this host reach the address."""
    return address.startswith(_LOOPBACK)


def meets_on_loopback(environment: Mapping[str, str]) -> bool:
    """True if only processes of this host reach the job's store."""
    return is_loopback(environment.get("MASTER_ADDR", ""))
