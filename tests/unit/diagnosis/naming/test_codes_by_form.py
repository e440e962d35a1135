"""The code of a cause by the form of a hypothesis: on small programs whose ranks are given here, and on saved cases."""

from __future__ import annotations

import textwrap

import pytest
from cases import case as case_path
from cases import row

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.hypotheses.forms import EditKind, FormKind
from hangdoc.diagnosis.naming.codes import BY_WAIT, TABLE, code_of
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.parting import Parting
from hangdoc.diagnosis.naming.words import told
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.catalogue import catalogue
from hangdoc.model.codec import load_snapshot
from hangdoc.model.message import Sentences
from hangdoc.model.process import Frame, Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, Module, RankSnapshot, SourceText
from hangdoc.model.wording import FileNames
from hangdoc.model.writing import Writer

FILE = "/job/train.py"
TORCH = "/venv/lib/python3.11/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
CULPRIT = 1


def job(code: str, culprit: Stack, other: Stack, world: int = 3) -> Case:
    """Ranks without journals; rank 1 has the first stack and all others have the second one."""
    ranks = []
    for rank in range(world):
        thread = Thread(100 + rank, "MainThread", "S", frames=culprit if rank == CULPRIT else other)
        process = Process(100 + rank, 1, "rank", looks=(ProcessState(1.0, "S", threads=(thread,)),))
        ranks.append(RankSnapshot(rank, "host", "environment", world_size=world, process=process))
    modules, sources = (Module(FILE, "sha256:0", code),), (SourceText(FILE, "<module>", 1, code),)
    return Case(JobSnapshot(1.0, "attach", ranks=tuple(ranks), modules=modules, sources=sources))


def in_call(code: str, op: str, *marked: str, below: tuple[Frame, ...] = ()) -> Stack:
    """A thread in that collective, called at the lines in which these words stand, the innermost first."""
    lines = code.split("\n")
    frames = []
    for each in marked:
        line = next(number for number, text in enumerate(lines, 1) if each in text)
        heads = [text.strip() for text in lines[:line] if text.startswith("def ")]
        indented = lines[line - 1].startswith(" ")
        frames.append(Frame(FILE, line, heads[-1][4:].partition("(")[0] if heads and indented else "<module>"))
    return (Frame(C10D, 3000, op), *below, *frames)


LOOP = textwrap.dedent("""\
    def train(loader):
        for batch in loader:
            dist.all_reduce(batch)  # inside
        dist.barrier()  # after
    """)
WHILE_TRUE = textwrap.dedent("""\
    def serve(inbox):
        while True:
            dist.broadcast(word, 0)  # inside
            if word == 0:
                break
            work(word)
        dist.barrier()  # after
    """)
CONTINUE = textwrap.dedent("""\
    def train(loader):
        for batch in loader:
            if not fits(batch):
                continue
            dist.all_reduce(batch)  # inside
            step()
        dist.barrier()  # after
    """)
BRANCH = textwrap.dedent("""\
    def train(loss):
        if loss > 3:
            dist.barrier()  # alone
        dist.all_reduce(loss)  # all
    """)
PARAMETERS = textwrap.dedent("""\
    def train(model, late):
        if late():
            dist.barrier()  # alone
        for p in model.parameters():
            dist.all_reduce(p.grad)  # all
    """)
BLOCKS = textwrap.dedent("""\
    def forward(blocks, x):
        for number, block in enumerate(blocks):
            x = block(x)  # all
        return x
    def train(x):
        forward(blocks, x)  # runs
        dist.barrier()  # alone
    """)
HANDLER = textwrap.dedent("""\
    def train(batch):
        try:
            dist.all_reduce(batch)  # all
        except ValueError:
            dist.barrier()  # alone
    """)


@pytest.mark.parametrize(
    ("code", "culprit", "other", "parting", "expected"),
    [
        (LOOP, "# after", "# inside", Parting.LEFT_LOOP, "HD102"),
        (LOOP, "# inside", "# after", Parting.STAYED_IN_LOOP, "HD102"),
        (WHILE_TRUE, "# after", "# inside", Parting.LEFT_LOOP, "HD102"),
        (CONTINUE, "# after", "# inside", Parting.LEFT_LOOP, "HD102"),
        (BRANCH, "# alone", "# all", Parting.BRANCH, "HD101"),
        (BRANCH, "# all", "# alone", Parting.BRANCH, "HD101"),
        (PARAMETERS, "# alone", "# all", Parting.BRANCH, "HD101"),
        (HANDLER, "# alone", "# all", Parting.EXCEPTION, "HD103"),
    ],
)
def test_the_ways_of_the_sides_name_it(code: str, culprit: str, other: str, parting: Parting, expected: str) -> None:
    case = job(code, in_call(code, "barrier", culprit), in_call(code, "all_reduce", other))
    facts = Facts(case, (CULPRIT,))
    assert facts.form.kind == FormKind.MISALIGNED
    assert facts.parted.how == parting
    assert code_of(facts) == expected


def test_a_call_that_a_library_makes_is_named_so() -> None:
    code = BRANCH.replace("dist.barrier()", "model(loss)")
    ddp = Frame(f"{TORCH}/nn/parallel/distributed.py", 1500, "forward")
    case = job(code, in_call(code, "broadcast", "# alone", below=(ddp,)), in_call(code, "all_reduce", "# all"))
    assert code_of(Facts(case, (CULPRIT,))) == "HD109"


def test_a_handler_of_signals_is_none_of_the_lines_calls() -> None:
    code = textwrap.dedent("""\
        signal.signal(signal.SIGUSR1, notice)
        def notice(number, frame):
            dist.barrier()  # handled
        def train(loss):
            work(loss)  # at work
            dist.all_reduce(loss)  # all
        """)
    case = job(code, in_call(code, "barrier", "# handled", "# at work"), in_call(code, "all_reduce", "# all"))
    facts = Facts(case, (CULPRIT,))
    assert facts.handler is not None
    assert facts.handler.function == "notice"
    assert code_of(facts) == "HD112"
    called = code.replace("work(loss)", "notice(0, 0)")
    case = job(called, in_call(called, "barrier", "# handled", "# at work"), in_call(called, "all_reduce", "# all"))
    assert Facts(case, (CULPRIT,)).handler is None


def test_a_loop_over_parts_of_the_program_is_none_that_a_rank_leaves_early() -> None:
    case = job(BLOCKS, in_call(BLOCKS, "barrier", "# alone"), in_call(BLOCKS, "all_reduce", "# all", "# runs"))
    assert Facts(case, (CULPRIT,)).parted.how == Parting.BRANCH
    data = BLOCKS.replace("x = block(x)", "x = step(block)")
    case = job(data, in_call(data, "barrier", "# alone"), in_call(data, "all_reduce", "# all", "# runs"))
    assert Facts(case, (CULPRIT,)).parted.how == Parting.LEFT_LOOP


def test_the_form_has_the_edit_and_both_calls() -> None:
    case = job(LOOP, in_call(LOOP, "barrier", "# after"), in_call(LOOP, "all_reduce", "# inside"))
    form = Facts(case, (CULPRIT,)).form
    assert form.edit in (EditKind.DELETE, EditKind.INSERT)
    assert form.gap is not None
    assert [token.op for token in (form.gap.mine, form.gap.theirs) if token] == ["barrier", "all_reduce"]
    assert form.need is not None
    assert form.need.waiter.rank == 0


def test_the_sentences_name_ranks_lines_and_the_test() -> None:
    case = job(BRANCH, in_call(BRANCH, "barrier", "# alone"), in_call(BRANCH, "all_reduce", "# all"))
    said, writer = told(Facts(case, (CULPRIT,))), Writer(FileNames([FILE]))
    assert writer.write(said.verdict) == (
        "Rank 1 alone calls barrier at train.py:3 train(); ranks 0 and 2 wait in all_reduce at train.py:4 train()."
    )
    assert "`if loss > 3:` (train.py:2)" in writer.write(Sentences(said.why))
    fix = writer.write(Sentences(said.fix))
    assert fix.startswith("Let every rank make the call at train.py:3, or none")
    assert "drop_last" not in fix


def test_without_a_loop_or_a_test_no_fix_speaks_of_one() -> None:
    code = "dist.barrier()  # one\ndist.all_reduce(x)  # other\n"
    case = job(code, in_call(code, "barrier", "# one"), in_call(code, "all_reduce", "# other"))
    said, writer = told(Facts(case, (CULPRIT,))), Writer(FileNames([FILE]))
    assert writer.write(Sentences(said.why)) == ""
    assert "alike" not in writer.write(Sentences(said.fix))


def test_every_code_is_in_the_catalogue() -> None:
    codes = {code for rows in TABLE.values() for code, _ in rows} | {*BY_WAIT.values()}
    assert codes <= catalogue().keys()
    assert set(TABLE) == set(FormKind)


@pytest.mark.parametrize(
    "name",
    [
        *("crossed_groups", "stopped_rank", "killed_rank", "straggler", "native_sleep", "thread_at_exit", "send_cycle"),
        *("members_only_group", "local_root", "queue_join_watched", "locked_server", "lock_file_left_by_an_exception"),
        *("signal_handler", "async_checkpoint", "no_main_guard", "two_ports", "compiles_alone", "pdb_stop"),
    ],
)
def test_saved_cases_have_their_code_by_form_alone(name: str) -> None:
    expected = row(name)
    said = code_of(Facts(prepared(load_snapshot(case_path(name))), tuple(expected["culprits"])))
    assert said == expected["cause"]
