"""What a sentence calls a file: 'train.py', or 'alpha/train.py' where the job runs another train.py as well.

The names are chosen once for a job, from all files that its user frames mention: every sentence and the report use the
same ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangdoc.diagnosis.bounds import SCANNED
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.model.process import Process, Stack
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.wording import FileNames


def file_names(job: JobSnapshot) -> FileNames:
    """The names of this job's files, those of libraries left out."""
    one_of = {frame.file: frame for stack in _stacks(job) for frame in stack}
    cells = {text.file: f"In[{text.cell}]" for text in job.sources if text.cell}
    files = (file for file, frame in one_of.items() if not is_library(frame))
    return FileNames(files, _working_directory(job), cells)


def _working_directory(job: JobSnapshot) -> str:
    """The launcher's, which is the reader's; a rank's own where no launcher was seen. '' where none is known."""
    processes = [job.launcher, *(rank.process for rank in job.ranks)]
    return next((process.cwd for process in processes if process is not None and process.cwd), "")


def _stacks(job: JobSnapshot) -> Iterator[Stack]:
    for index, rank in enumerate(job.ranks):
        yield from _of_rank(rank)
        if rank.journal is not None and index < SCANNED:
            yield from rank.journal.stacks


def _of_rank(rank: RankSnapshot) -> Iterator[Stack]:
    yield rank.first_store
    if rank.exit is not None:
        yield from (each.stack for each in rank.exit.raised)
    if rank.journal is not None:
        yield rank.journal.failed_at
        yield rank.journal.handled_at
    if rank.process is not None:
        yield from _of_process(rank.process)


def _of_process(process: Process) -> Iterator[Stack]:
    for thread in process.last.threads if process.last is not None else ():
        yield thread.frames
    for child in process.children:
        yield from _of_process(child)
