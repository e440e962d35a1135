"""What the user has told the launcher about its ranks' output. It is left as it is, and said.

torchrun takes each option from PET_NAME too, where the command line does not have it (``argparse_util.env``, torch 1.9
to 2.13), so its arguments need not be touched. accelerate takes only --redirects from there: it sets --log_dir and
--tee itself (accelerate 1.15).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hangdoc.model.launch import number

_OPTIONS = ("redirects", "tee", "log_dir", "local_ranks_filter")
_SHORT = {"-r": "redirects", "-t": "tee"}
_TORCHRUN = ("torchrun", "torch.distributed.run", "torch.distributed.launch")
_ACCELERATE = ("accelerate", "accelerate.commands.launch", "accelerate-launch")
_ELSEWHERE = ("srun", "mpirun", "mpiexec", "orterun", "ssh", "pdsh", "kubectl", "deepspeed", "ray")
"""Commands that start processes on other hosts, where a folder of this one may not exist."""


@dataclass(frozen=True, slots=True)
class Choice:
    """How the ranks' output is found.

    ``variables``: what the command gets in its environment. ``by_rank``: torchrun's ranks have files of their own that
    are to be shown. ``elsewhere``: those files may lie in another folder than ours. ``only``: the local ranks that the
    user wants to see; None for all. ``notes``: what is to be said, one sentence each.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    by_rank: bool = True
    elsewhere: bool = False
    only: frozenset[int] | None = None
    notes: tuple[str, ...] = ()


def choose(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Choice:
    """What to set for a command so that its ranks write to files in ``folder``, as far as the user leaves it open."""
    variables = {} if "PYTHONUNBUFFERED" in environment else {"PYTHONUNBUFFERED": "1"}
    names = [os.path.basename(word) for word in command]  # noqa: PTH119 - words, of which few are paths
    away = next((name for name in names[: _first_script(names)] if name in _ELSEWHERE), None)
    if away is not None:
        note = f"{away} may start ranks on other hosts, so --logs shows what reaches {away}, without ranks"
        return Choice(variables, by_rank=False, notes=(note,))
    if (number(environment.get("SLURM_NNODES")) or 1) > 1 and not any(name in _TORCHRUN for name in names):
        note = f"{names[0]} may start ranks on the other hosts of this Slurm job, so --logs shows what it prints itself"
        return Choice(variables, by_rank=False, notes=(note,))
    accelerate = any(name in _ACCELERATE for name in names)
    given = _given(command, names, environment)
    if accelerate and "log_dir" not in given:
        note = "accelerate keeps its ranks' output together; add --log_dir DIR to its options for a file of each rank"
        return Choice(variables, by_rank=False, notes=(note,))
    if _is_set(given.get("tee")):
        where = {} if "log_dir" in given else {"PET_LOG_DIR": str(folder)}
        return Choice(
            {**variables, **where},
            by_rank=False,
            notes=("torchrun's --tee is set, so the stream shows what torchrun prints",),
        )
    notes = []
    if "redirects" in given:
        notes.append(f"--redirects {given['redirects']} is set: what it leaves out is shown without a rank")
    else:
        variables["PET_REDIRECTS"] = "3"
    if "log_dir" in given:
        notes.append(f"--log-dir is set: the ranks' files are in {given['log_dir']}")
    else:
        variables["PET_LOG_DIR"] = str(folder)
    only = _numbers(given.get("local_ranks_filter", ""))
    if only:
        notes.append(f"--local-ranks-filter {given['local_ranks_filter']} is set: the others' lines are in their files")
    return Choice(variables, elsewhere="log_dir" in given, only=only or None, notes=tuple(notes))


def _first_script(names: Sequence[str]) -> int:
    """Where the arguments of a script or module begin: they are not the launcher's. 'torchrun -m train --tee 3' → 3."""
    for place, name in enumerate(names):
        module = names[place - 1] in ("-m", "--module") and place and name not in (*_TORCHRUN, *_ACCELERATE)
        if module or name.endswith((".py", ".sh")):
            return place + 1
    return len(names)


def _given(command: Sequence[str], names: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Option → value, of those that the user has set: in the environment, or in the command, which wins."""
    found = {name: environment[f"PET_{name.upper()}"] for name in _OPTIONS if environment.get(f"PET_{name.upper()}")}
    start = next((place for place, name in enumerate(names) if name in (*_TORCHRUN, *_ACCELERATE)), None)
    if start is not None:
        found.update(_options(command[start + 1 : _first_script(names)]))
    return found


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """('tee', '3') for '--tee 3', '--tee=3', '-t3' and, as argparse lets one shorten it, '--te 3'."""
    for place, word in enumerate(words):
        after = next(iter(words[place + 1 : place + 2]), "")
        if word[:2] in _SHORT and not word.startswith("--"):
            yield _SHORT[word[:2]], word[2:].removeprefix("=") or after
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            full = [option for option in _OPTIONS if option.startswith(name.replace("-", "_"))]
            if len(full) == 1 and len(name) > 1:
                yield full[0], value if equals else after


def _is_set(value: str | None) -> bool:
    return value is not None and value.strip() not in ("", "0")


def _numbers(text: str) -> frozenset[int]:
    words = [word.strip() for word in text.split(",")]
    return frozenset(int(word) for word in words if word.isascii() and word.isdigit())
