"""A job by what its ranks have in common on every host: how one host tells another which job it means.

The key is one word that every shell and every program that carries a command passes on unchanged:
'MASTER_ADDR=node0,MASTER_PORT=29500,WORLD_SIZE=16'. Names are those of ``model.launch``; other characters of values are
percent-encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote, unquote

from hangdoc.capture.find.job import Job
from hangdoc.capture.find.target import host_name
from hangdoc.errors import CannotLook, UsageError
from hangdoc.model.launch import MEETING_NAMES, NAMES_OF_A_JOB, shared_variables
from hangdoc.model.wording import harmless

_NAMES = (*NAMES_OF_A_JOB, *MEETING_NAMES)
_MOST_LISTED = 8
_LIST = "`hangdoc attach` without a pid lists the jobs that run there."


def variables_of(job: Job) -> dict[str, str]:
    """What all ranks of the job agree on and that tells it from other jobs; {} where nothing in their environment does
    (mp.spawn, Ray)."""
    found: dict[str, set[str]] = {}
    for target in job.targets:
        if target.pid is not None:
            for name, value in shared_variables(dict(target.environment)).items():
                found.setdefault(name, set()).add(value)
    return {name: found[name].pop() for name in _NAMES if len(found.get(name, ())) == 1}


def format_key(variables: Mapping[str, str]) -> str:
    """The variables as one word; ``parse_key`` reads it."""
    return ",".join(f"{name}={quote(value, safe='')}" for name, value in variables.items())


def parse_key(text: str) -> dict[str, str]:
    """The variables that a key names. Raises ``UsageError`` for anything else."""
    found = {}
    for word in text.split(","):
        name, equals, value = word.partition("=")
        if name not in _NAMES or not equals or not value:
            raise UsageError(
                f"{harmless(word)!r} is no part of a job's key",
                f"Write NAME=VALUE, with a comma between two; names are {', '.join(_NAMES)}.",
            )
        found[name] = unquote(value)
    return found


def choose(jobs: Iterable[Job], wanted: Mapping[str, str]) -> Job:
    """The one job that fits ``wanted`` ({}: the only one there is). Raises ``CannotLook`` for none and for several.

    A job whose ranks were given another meeting place counts if nothing else fits and all that can not differ within
    one job agrees: that its hosts were told to meet in different places may be why it hangs.
    """
    running = [job for job in jobs if job.pids]
    fitting = [job for job in running if _agrees(job, wanted, wanted)]
    if not fitting:
        fitting = [job for job in running if _agrees(job, wanted, NAMES_OF_A_JOB)] if wanted else []
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        what = f"no job with {harmless(format_key(wanted))}" if wanted else "no distributed job"
        raise CannotLook(f"{what} runs on {host_name()}, or its ranks may not be read", _LIST)
    raise CannotLook(
        f"{len(fitting)} jobs on {host_name()} fit",
        f"Say which one: {' or '.join(_ways(fitting))}.",
    )


def _agrees(job: Job, wanted: Mapping[str, str], names: Iterable[str]) -> bool:
    own = variables_of(job)
    compared = [name for name in names if name in wanted]
    return all(own.get(name) == wanted[name] for name in compared) and bool(compared or not wanted)


def _ways(jobs: Sequence[Job]) -> list[str]:
    """How to name each of the jobs on the command line, as far as that tells them apart."""
    keys = [format_key(variables_of(job)) for job in jobs[:_MOST_LISTED]]
    pids = [job.root if job.root is not None else min(job.pids) for job in jobs[:_MOST_LISTED]]
    return [f"--job {key}" if key and keys.count(key) == 1 else str(pid) for key, pid in zip(keys, pids, strict=True)]
