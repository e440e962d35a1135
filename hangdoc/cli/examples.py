"""The examples at the end of each ``--help``."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("hangdoc watch torchrun --nproc-per-node 8 train.py", "next time"),
        ("hangdoc attach", "it is frozen now: which jobs are there?"),
        ("hangdoc attach 4711", "which rank holds this one up?"),
        ("hangdoc guide quickstart", "the guide, also without a network"),
    ),
    "watch": (
        ("hangdoc watch torchrun --nproc-per-node 8 train.py", ""),
        ("hangdoc watch --stall-after 5m --on-hang abort -- python train.py", "end it, with status 124"),
        ("hangdoc watch --report hang.html --keep 20 accelerate launch train.py", ""),
        ("srun hangdoc watch python train.py", "many hosts: one verdict"),
    ),
    "attach": (
        ("hangdoc attach", "list the jobs of this machine"),
        ("hangdoc attach 4711", "any process of the job, or its watch"),
        ("hangdoc attach 4711 --inject", "with the calls before the hang"),
        ("hangdoc attach 4711 --hosts node1,node2", ""),
        ("hangdoc attach --slurm 12345", ""),
        ("hangdoc attach --kubectl -n training -l job-name=llama", ""),
    ),
    "collect": (
        ("hangdoc collect logs/ -o job.hangdoc", "a dead job's logs and dumps"),
        ("hangdoc collect logs/ dumps/ -o job.hangdoc", ""),
        ("hangdoc collect --pid 4711 -o job.hangdoc", "a job that still runs"),
        ("hangdoc collect /tmp/dumps --hosts node0,node1 -o job.hangdoc", "of each host"),
        ("hangdoc collect logs/ --slurm 12345 -o job.hangdoc", "and all live ranks"),
    ),
    "diagnose": (
        ("hangdoc diagnose .hangdoc/latest", "the latest run under watch"),
        ("hangdoc diagnose stall-1.hangdoc -v", "all evidence, every stack"),
        ("hangdoc diagnose train.log", "a dead job's log; -: stdin"),
        ("hangdoc diagnose logs/ stacks.txt", "with a py-spy dump"),
        ("hangdoc diagnose dumps/ --report hang.html", "flight-recorder dumps"),
        ("hangdoc diagnose node0.hangdoc node1.hangdoc", "one job on two hosts"),
        ("hangdoc diagnose job.hangdoc", "what hangdoc collect wrote"),
    ),
    "stats": (
        ("hangdoc stats .hangdoc/latest", "the latest run under watch"),
        ("hangdoc stats job.hangdoc", "kept by hangdoc attach PID --save"),
    ),
    "explain": (
        ("hangdoc explain", "list all causes"),
        ("hangdoc explain HD102", ""),
        ("hangdoc explain uneven-iterations", ""),
    ),
    "guide": (
        ("hangdoc guide", "list the pages"),
        ("hangdoc guide containers", ""),
    ),
    "scenario": (
        ("hangdoc scenario list", ""),
        ("hangdoc scenario show uneven_batches", ""),
        ("hangdoc scenario run uneven_batches", ""),
    ),
    "scenario list": (("hangdoc scenario list", ""),),
    "scenario show": (("hangdoc scenario show uneven_batches", ""),),
    "scenario run": (
        ("hangdoc scenario run uneven_batches rank_guard --quiet", ""),
        ("FIXED=1 hangdoc scenario run uneven_batches", "the corrected program"),
    ),
    "doctor": (
        ("hangdoc doctor", ""),
        ("hangdoc doctor --python /opt/job/bin/python", "the job's own Python"),
    ),
    "schema": (("hangdoc schema > hangdoc.schema.json", ""),),
}
"""Command → its examples, each with what it is for. ``capture`` parses and explains itself."""


def epilog(command: str) -> str:
    """The examples as click leaves them: behind a backspace it wraps no line."""
    examples = EXAMPLES.get(command, ())
    if not examples:
        return ""
    widest = max((len(line) for line, what in examples if what and len(line) <= _COLUMN), default=0)
    lines = []
    for line, what in examples:
        if what and len(line) > widest:
            lines += [f"  # {what}", f"  {line}"]
        else:
            lines.append(f"  {line.ljust(widest)}  # {what}" if what else f"  {line}")
    return "\n".join(["\b", "Examples:", *lines])


_COLUMN = 44
"""Commands up to this long have what they are for beside them: that fits 80 cells."""
