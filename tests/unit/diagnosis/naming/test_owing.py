"""What is said of a thing that the others wait for and the culprits have not given."""

from __future__ import annotations

from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.words import told
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.message import Sentences
from hangdoc.model.process import Frame, Process, ProcessState, Stack, Thread
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import JobSnapshot, Module, RankSnapshot, SourceText
from hangdoc.model.wording import FileNames
from hangdoc.model.writing import Writer

FILE = "/job/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
SLEEP = "hrtimer_nanosleep"
TEXT = """\
def publish(path, rows):
    if len(rows) > 3:
        path.touch()

def take(path):
    while not path.exists():
        time.sleep(1)

def lock(mark):
    while True:
        try:
            return os.open(mark, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            time.sleep(1)

def unlock(mark):
    os.unlink(mark)

def main(path, rows):
    if rank == 1:
        publish(path, rows)
    else:
        take(path)
    dist.barrier()
    lock(path)
"""
IN_CALL = (Frame(C10D, 3000, "barrier"), Frame(FILE, 24, "main"))
POLLS = (Frame(FILE, 7, "take"), Frame(FILE, 23, "main"))
LOCKS = (Frame(FILE, 14, "lock"), Frame(FILE, 25, "main"))


def facts(*stacks: Stack, culprit: int, ran: dict[int, tuple[int, ...]] | None = None) -> Facts:
    """Ranks with these stacks. ``ran``: rank → the lines that have run of publish()."""
    ranks = []
    for rank, frames in enumerate(stacks):
        threads = (Thread(100 + rank, "MainThread", "S", None if frames == IN_CALL else SLEEP, frames=frames),)
        looks = tuple(ProcessState(float(at), "S", threads=threads) for at in (1, 2))
        lines = (ran or {}).get(rank, ())
        code = RanCode(FILE, "publish", 1, bool(lines), lines, tuple(n for n in (2, 3) if n not in lines))
        process = Process(100 + rank, 1, "rank", looks=looks, code=(code,) if ran is not None else ())
        ranks.append(RankSnapshot(rank, "host", "environment", len(stacks), process=process))
    text = {"modules": (Module(FILE, "", TEXT),), "sources": (SourceText(FILE, "<module>", 1, TEXT),)}
    return Facts(prepared(JobSnapshot(2.0, "attach", world_size=len(stacks), ranks=tuple(ranks), **text)), (culprit,))


def said(of: Facts) -> tuple[str, str, str]:
    """(verdict, why, fix)."""
    found, writer = told(of), Writer(FileNames([FILE]))
    return writer.write(found.verdict), writer.write(Sentences(found.why)), writer.write(Sentences(found.fix))


def test_who_owes_what_to_whom_and_which_test_kept_it_away() -> None:
    of = facts(POLLS, IN_CALL, POLLS, culprit=1, ran={0: (), 1: (2,), 2: ()})
    verdict, why, fix = said(of)
    assert verdict == (
        "Rank 1 has not written what ranks 0 and 2 wait for at train.py:7 take(): "
        "it waits in barrier at train.py:24 main()."
    )
    assert why == (
        "It is written at train.py:3, where rank 1 has never come. "
        "`if len(rows) > 3:` (train.py:2) never was True on rank 1."
    )
    assert fix == (
        "Let rank 1 end that wait whichever way `if len(rows) > 3:` (train.py:2) goes, "
        "and give the wait at train.py:7 a timeout."
    )


def test_without_counters_it_is_only_said_where_it_is_given() -> None:
    verdict, why, fix = said(facts(POLLS, IN_CALL, POLLS, culprit=1))
    assert verdict.startswith("Rank 1 has not written what ranks 0 and 2 wait for at train.py:7 take()")
    assert why == "It is written at train.py:3. `if len(rows) > 3:` (train.py:2) decides whether it is."
    assert fix == "Look at which ways lead past train.py:3, and give the wait at train.py:7 a timeout."


def test_a_file_that_must_not_be_there_yet_is_a_lock() -> None:
    of = facts(LOCKS, IN_CALL, LOCKS, culprit=1)
    verdict, why, _ = said(of)
    assert told(of).code == "HD504"
    assert verdict.startswith("Rank 1 has not released the lock, for which ranks 0 and 2 wait at train.py:14 lock()")
    assert why.startswith("It may be released at train.py:17.")  # that it is the same file nobody says


def test_the_lines_of_the_wait_and_of_its_end_are_shown() -> None:
    found, writer = told(facts(POLLS, IN_CALL, POLLS, culprit=1)), Writer(FileNames([FILE]))
    shown = [(frame.line, writer.write(text)) for frame, text in found.shown]
    assert shown == [(7, "ranks 0 and 2: wait here"), (3, "it is written here")]


def test_of_ranks_that_all_wait_alike_it_is_said_that_one_differs() -> None:
    verdict, why, _ = said(facts(POLLS, POLLS, POLLS, culprit=1))
    assert verdict.endswith("what was seen of rank 1 differs from the others.")
    assert "may have led" not in why
