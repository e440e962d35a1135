"""A run of GitHub Actions: an annotation at the user's line, the report in the run's summary.

The runner takes a line of output that begins with '::' as a command, and '##[' anywhere in one. So what comes from the
job is kept from beginning like that, and is escaped inside the one command that we mean.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame
from hangdoc.model.wording import harmless

_COMMAND = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*):(?=:)", re.MULTILINE)
_LONGEST = 1000
"""Characters of an annotation; the runner cuts what is longer than some thousand."""
_LARGEST_SUMMARY = 1 << 20
"""Bytes of a step's summary, after which the runner refuses all of it (its documentation)."""


def in_actions(environment: Mapping[str, str] | None = None) -> bool:
    """True in a step of GitHub Actions."""
    return (os.environ if environment is None else environment).get("GITHUB_ACTIONS") == "true"


def inert(text: str, environment: Mapping[str, str] | None = None) -> str:
    """``text`` without anything that the runner would obey. Example: '  ::x::y' → '  : :x::y'."""
    if not in_actions(environment):
        return text
    return _COMMAND.sub(r"\1: ", text).replace("##[", "## [")


def annotation(diagnosis: Diagnosis, environment: Mapping[str, str]) -> str:
    """'::error file=train.py,line=41,title=hangdoc HD102 uneven-iterations::Rank 2 left …', a line of output."""
    frame = _line(diagnosis)
    properties = []
    if frame is not None and not frame.file.startswith("<"):
        properties = [("file", _in_workspace(frame.file, environment)), ("line", str(frame.line))]
    cause = f" {diagnosis.cause.code} {diagnosis.cause.name}" if diagnosis.cause is not None else ""
    properties.append(("title", f"hangdoc{cause}"))
    told = ",".join(f"{name}={_property(value)}" for name, value in properties)
    return f"::error {told}::{_data(diagnosis.verdict[:_LONGEST])}\n"


def tell(diagnosis: Diagnosis, say: Callable[[str], None], environment: Mapping[str, str] | None = None) -> None:
    """In GitHub Actions: ``say`` the annotation of a hang or a crash, and append the report to the step's summary."""
    environment = os.environ if environment is None else environment
    if not in_actions(environment) or diagnosis.outcome not in ("hang", "crashed"):
        return
    say(annotation(diagnosis, environment))
    path = environment.get("GITHUB_STEP_SUMMARY")
    if path:
        from hangdoc.report import markdown

        try:
            _append(path, f"{markdown.render(diagnosis)}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            say(f"hangdoc: no summary of this step: {harmless(error.strerror or str(error))}\n")


def _line(diagnosis: Diagnosis) -> Frame | None:
    """Where to point: the condition on which the ranks diverged, else where a culprit is."""
    branch = diagnosis.divergence.branch if diagnosis.divergence is not None else None
    if branch is not None:
        return Frame(branch.file, branch.line, "")
    sides = diagnosis.divergence.sides if diagnosis.divergence is not None else ()
    guilty = [side.frame for side in sides if set(side.ranks) & set(diagnosis.culprits)]
    guilty += [activity.where for activity in diagnosis.ranks if activity.rank in diagnosis.culprits]
    everyone = [activity.where for activity in diagnosis.ranks]
    return next((frame for frame in (*guilty, *everyone) if frame is not None), None)


def _in_workspace(file: str, environment: Mapping[str, str]) -> str:
    """The path from the checkout's root, by which the runner finds the line in a pull request."""
    root = environment.get("GITHUB_WORKSPACE", "")
    path = PurePosixPath(file)
    if root and path.is_relative_to(root):
        return str(path.relative_to(root))
    return file


def _data(text: str) -> str:
    return harmless(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _append(path: str, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no regular file")
        if status.st_size + len(data) > _LARGEST_SUMMARY:
            raise OSError("it would become longer than GitHub takes")
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
