"""A diagnosis with every part filled in, for the tests of the reports."""

from __future__ import annotations

from hangdoc.model.catalogue import cause
from hangdoc.model.diagnosis import (
    Activity,
    Branch,
    BranchValue,
    CodeExcerpt,
    CodeLine,
    CulpritProcess,
    Diagnosis,
    Divergence,
    Edit,
    Evidence,
    Repair,
    Side,
    Wait,
)
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import Unavailable

FILE = "/home/me/project/train.py"
EVALUATE = Frame(FILE, 88, "evaluate")
TRAIN = Frame(FILE, 61, "train")
LIBRARY = Frame("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 4000, "all_gather")
WORLD = (0, 1, 2, 3)

SAMPLE = Diagnosis(
    outcome="hang",
    verdict="Rank 2 left the training loop early; ranks 0, 1 and 3 wait for it in backward().",
    confidence="certain",
    cause=cause("HD102"),
    culprits=(2,),
    culprit_processes=(CulpritProcess(2, 4711, "node1", "rank"),),
    victims=(0, 1, 3),
    why="`for batch in loader:` (train.py:57) ended after 519 batches on rank 2 and not on the others"
    " (step = 519 | 520)",
    fix="give every rank the same number of batches (DistributedSampler(drop_last=True)) or wrap the loop in `Join`",
    sure="call sequences of all 4 ranks seen",
    repair=Repair(
        (Edit(2, "delete", "all_gather", EVALUATE),),
        "Removing the `all_gather` at train.py:88 on rank 2 makes all 1042 calls match.",
    ),
    divergence=Divergence(
        (
            Side(
                (0, 1, 3),
                "default_pg",
                WORLD,
                1042,
                "all_reduce",
                TRAIN,
                (TRAIN,),
                note="DDP gradient bucket",
            ),
            Side((2,), "default_pg", WORLD, 1042, "all_gather", EVALUATE, (LIBRARY, EVALUATE)),
        ),
        Branch(FILE, 57, "for batch in loader:", "loop", (BranchValue("step", "519", (2,), "now"),)),
    ),
    code=(
        CodeExcerpt(
            FILE,
            "train",
            (
                CodeLine(57, "    for batch in loader:", ("ended on rank 2, continues on ranks 0, 1 and 3",), (4, 24)),
                CodeLine(61, "        loss.backward()", ("ranks 0, 1 and 3: all_reduce",)),
            ),
        ),
        CodeExcerpt(
            FILE, "evaluate", (CodeLine(88, "    dist.all_gather(parts, score)", ("rank 2: all_gather",), None, True),)
        ),
    ),
    ranks=tuple(
        Activity(
            rank,
            "node1",
            4700 + rank,
            "in-collective",
            "all_gather  default_pg #1042" if rank == 2 else "all_reduce  default_pg #1042",
            EVALUATE if rank == 2 else TRAIN,
        )
        for rank in WORLD
    ),
    waits=tuple(Wait(rank, (2,), "it has not called all_reduce", "journal") for rank in (0, 1, 3)),
    evidence=(Evidence("journal", (2,), "all_gather where the others call all_reduce (#1042)"),),
    unavailable=(
        Unavailable("stack", "Permission Denied", "run hangdoc as the job's user", 1),
        Unavailable("stack", "Permission Denied", "run hangdoc as the job's user", 3),
    ),
    command=("/venv/bin/torchrun", "--standalone", "train.py", "--token=secret"),
    stalled_for=31.2,
    world_size=4,
)
