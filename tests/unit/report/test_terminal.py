"""The terminal report: what it says, and that no width, terminal or hostile text breaks it."""

from __future__ import annotations

import dataclasses
import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from sample_diagnosis import FILE, SAMPLE

from hangdoc.model.diagnosis import (
    Activity,
    BranchValue,
    CodeExcerpt,
    CodeLine,
    CulpritProcess,
    Diagnosis,
    Evidence,
    Wait,
)
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import NO_PROBE, Unavailable
from hangdoc.model.wording import fold_ranks, harmless, name_duration, name_ranks
from hangdoc.report.links import link_to
from hangdoc.report.terminal import recall, render, render_for

ANSI = re.compile(r"\x1b\[[0-9;]*m")

EXPECTED = """\
hangdoc ✖ hang · 4 ranks · stalled 31 s · torchrun train.py

  Rank 2 left the training loop early; ranks 0, 1 and 3 wait for it in backward().

  train.py train()
  57 │ for batch in loader:
     │ ^^^^^^^^^^^^^^^^^^^^ ended on rank 2, continues on ranks 0, 1 and 3
   ⋮
  61 │     loss.backward()  ← ranks 0, 1 and 3: all_reduce

  train.py evaluate()
  88 │ dist.all_gather(parts, score)  ← rank 2: all_gather

  why        `for batch in loader:` (train.py:57) ended after 519 batches on rank 2 and not on the others
             (step = 519 | 520)
  fix        give every rank the same number of batches (DistributedSampler(drop_last=True)) or wrap the loop
             in `Join`
  repair     Removing the `all_gather` at train.py:88 on rank 2 makes all 1042 calls match.

  rank 2     train.py:88 evaluate()  all_gather  default_pg #1042
  others     train.py:61 train()     all_reduce  default_pg #1042  (DDP gradient bucket)

  process    pid 4711 on node1

  seen       all_gather where the others call all_reduce (#1042)  (journal, rank 2)
  not seen   stack of ranks 1 and 3: Permission Denied → run hangdoc as the job's user
  sure?      certain: call sequences of all 4 ranks seen   ·   HD102 uneven-iterations
             hangdoc explain HD102
"""


def test_the_whole_report():
    assert render(SAMPLE, width=110) == EXPECTED


def test_what_is_said_again_is_the_whole_short_answer():
    answer, _, rest = EXPECTED.partition("  rank 2     train.py:88")
    assert recall(SAMPLE, width=110) == answer.replace(" · stalled 31 s", "") + rest[rest.index("  sure?") :]


def test_a_note_that_does_not_fit_is_below_its_line():
    text = render(SAMPLE, width=50)
    assert (
        """
  61 │     loss.backward()
     │     ↑ ranks 0, 1 and 3: all_reduce
"""
        in text
    )


def test_without_code_the_places_come_before_the_reason():
    text = render(dataclasses.replace(SAMPLE, code=()), width=100)
    assert text.index("train.py:88 evaluate()") < text.index("why  ") < text.index("sure?")


def test_the_last_row_is_one_line_where_it_fits():
    last = render(SAMPLE, width=130).splitlines()[-1]
    assert last.endswith("·   HD102 uneven-iterations   ·   hangdoc explain HD102")


@pytest.mark.parametrize("width", range(40, 201, 7))
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_asked(width, unicode):
    long = dataclasses.replace(
        SAMPLE,
        why="x" * 300 + " 日本語" * 40,
        ranks=tuple(
            dataclasses.replace(a, where=Frame("/a/" + "very_long_directory/" * 9 + "m.py", 1, "f" * 90))
            for a in SAMPLE.ranks
        ),
        divergence=None,
        code=(CodeExcerpt(FILE, "f" * 90, (CodeLine(7, " " * 30 + "x = '日本語'" * 30, ("n " * 90,), (34, 90)),)),),
    )
    for diagnosis in (SAMPLE, long):
        text = render(diagnosis, width=width, unicode=unicode)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert unicode or text.isascii()


def test_a_narrow_terminal_loses_nothing():
    words = re.sub(r"\s+", "", render(SAMPLE, width=40))
    for text in ("train.py:88evaluate()", "all_gather", "default_pg#1042", "DDPgradientbucket", "HD102"):
        assert text in words


def test_colour_changes_nothing_but_colour():
    colored = render(SAMPLE, width=100, color=True)
    assert ANSI.search(colored)
    assert ANSI.sub("", colored) == render(SAMPLE, width=100)


def test_without_a_divergence_activities_are_folded():
    where = Frame("/x/t.py", 9, "main")
    waiting = Activity(0, "h", 1, "in-collective", "all_reduce  default_pg #7", where)
    ranks = [dataclasses.replace(waiting, rank=rank) for rank in range(6)]
    ranks[3] = Activity(3, "h", 1, "stopped", "stopped (state T)", where)
    waits = tuple(Wait(rank, (3,), "", "journal") for rank in range(6) if rank != 3)
    diagnosis = dataclasses.replace(
        SAMPLE, divergence=None, code=(), world_size=6, ranks=tuple(ranks), culprits=(3,), waits=waits
    )
    lines = render(diagnosis).splitlines()
    assert lines[4].split() == ["rank", "3", "t.py:9", "main()", "stopped", "(state", "T)"]
    assert lines[5].split()[:3] == ["others", "t.py:9", "main()"]
    assert lines[5].endswith("waits for rank 3")


def test_ranks_that_moved_on_since_the_divergence_are_shown():
    elsewhere = dataclasses.replace(SAMPLE.ranks[2], where=Frame("/home/me/project/train.py", 99, "save"))
    diagnosis = dataclasses.replace(SAMPLE, ranks=(*SAMPLE.ranks[:2], elsewhere, SAMPLE.ranks[3]))
    text = render(diagnosis)
    assert "train.py:88 evaluate()" in text
    assert "now: rank 2" in text
    assert "train.py:99 save()" in text


def test_two_sides_of_one_rank_each_are_named():
    sides = tuple(dataclasses.replace(side, ranks=(i,)) for i, side in enumerate(SAMPLE.divergence.sides))
    diagnosis = dataclasses.replace(
        SAMPLE,
        divergence=dataclasses.replace(SAMPLE.divergence, sides=sides),
        ranks=SAMPLE.ranks[:2],
        culprits=(1,),
        alternatives=((0,),),
        confidence="possible",
    )
    text = render(diagnosis)
    assert "others" not in text.split("why")[0]
    assert "It could also be rank 0" in text


def test_a_value_that_was_seen_is_not_inferred_again():
    values = (
        BranchValue("warm", "True", (2,), "inferred-from-path"),
        BranchValue("warm", "True", (2,), "now"),
        BranchValue("warm", "False", (0, 1, 3), "inferred-from-path"),
    )
    branch = dataclasses.replace(SAMPLE.divergence.branch, values=values)
    divergence = dataclasses.replace(SAMPLE.divergence, branch=branch)
    text = render(dataclasses.replace(SAMPLE, divergence=divergence), width=120)
    assert "with       warm = True (rank 2)" in text  # of the other side it is only inferred


def test_many_behaviours_are_cut_off():
    ranks = tuple(Activity(r, "h", r, "computing", f"step {r}", Frame("/x/t.py", r, "f")) for r in range(500))
    text = render(dataclasses.replace(SAMPLE, divergence=None, ranks=ranks, culprits=(77,)))
    assert text.count("\n") < 40
    assert "rank 77 " in text
    assert "… and 488 more behaviors" in text


def test_a_working_job_gets_one_sentence():
    ranks = (dataclasses.replace(SAMPLE.ranks[0], moving=True), *SAMPLE.ranks[1:])
    text = render(dataclasses.replace(SAMPLE, outcome="slow", ranks=ranks, verdict="Rank 0 computes."))
    assert text == "hangdoc ◔ slow · no progress for 31 s · 4 ranks · torchrun train.py\n  Rank 0 computes.\n"


def test_a_verbose_report_of_a_job_that_works_has_every_stack():
    frames = (Frame("/x/train.py", 61, "train"), Frame("/x/train.py", 99, "main"))
    ranks = tuple(dataclasses.replace(activity, moving=True, stack=frames) for activity in SAMPLE.ranks)
    slow = dataclasses.replace(SAMPLE, outcome="slow", ranks=ranks)
    assert "main  train.py:99" in render(slow, verbose=True)
    assert "main  train.py:99" not in render(slow)


def test_a_job_that_waits_on_the_outside_gets_the_whole_report():
    text = render(dataclasses.replace(SAMPLE, outcome="slow"))
    assert text.startswith("hangdoc ◔ slow")
    assert "fix " in text


def test_healthy_and_blind():
    healthy = render(Diagnosis("healthy", "All ranks move."))
    assert healthy == "hangdoc ✔ healthy\n\n  All ranks move.\n"
    blind = render(Diagnosis("blind", "No rank was found.", unavailable=(Unavailable("process", "gone", "wait"),)))
    assert "not seen   process: gone → wait" in blind
    assert "sure?" not in blind


def test_options_of_the_command_are_not_shown():
    assert "secret" not in render(SAMPLE)


HOSTILE = "\x1b[31m\x1b]0;t\x07[bold red]x[/] :smile: \u202e\u2066\x9b\r\x00\u200b\udcff\u2028end"


def test_hostile_text_is_shown_and_not_obeyed():
    diagnosis = dataclasses.replace(
        SAMPLE,
        verdict=HOSTILE,
        why=HOSTILE,
        fix=HOSTILE,
        ranks=tuple(dataclasses.replace(a, text=HOSTILE, where=Frame(HOSTILE, 1, HOSTILE)) for a in SAMPLE.ranks),
        command=(HOSTILE, HOSTILE + ".py"),
    )
    for color in (False, True):
        text = render(diagnosis, width=200, color=color)
        visible = ANSI.sub("", text) if color else text
        assert harmless(visible.replace("\n", "")) == visible.replace("\n", "")
        assert "[bold red]x[/] :smile:" in visible
    assert "\x1b" not in render(diagnosis)


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=80), st.integers(40, 90), st.booleans())
def test_any_text_at_any_width(text, width, unicode):
    diagnosis = dataclasses.replace(SAMPLE, verdict=text, why=text, fix=text + text)
    for line in render(diagnosis, width=width, unicode=unicode).splitlines():
        assert cell_len(line) <= width
        assert harmless(line) == line


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True

    def fileno(self):
        raise OSError("not a real one")


class Ascii(io.StringIO):
    encoding = "ANSI_X3.4-1968"


def test_colours_only_where_they_are_wanted():
    # The size of a terminal that cannot tell it makes it no terminal: take a pseudo-terminal below.
    for environment in ({"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}, {}):
        assert "\x1b" not in render_for(Terminal(), SAMPLE, environment)
    assert "✖" in render_for(Terminal(), SAMPLE, {})
    assert render_for(Ascii(), SAMPLE, {}).isascii()
    assert "\x1b[" in render_for(io.StringIO(), SAMPLE, {"FORCE_COLOR": "1"})
    assert "\x1b" not in render_for(io.StringIO(), SAMPLE, {"FORCE_COLOR": "1", "NO_COLOR": "1"})


def test_a_real_terminal_gets_its_width_and_colours():
    import fcntl
    import os
    import struct
    import termios

    master, slave = os.openpty()
    try:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
        with open(slave, "w", encoding="utf-8", closefd=False) as stream:
            colored = render_for(stream, SAMPLE, {"TERM": "xterm"})
            assert "\x1b[" in colored
            assert max(cell_len(ANSI.sub("", line)) for line in colored.splitlines()) <= 50
            assert "\x1b" not in render_for(stream, SAMPLE, {"TERM": "dumb"})
            assert "\x1b" not in render_for(stream, SAMPLE, {"TERM": "xterm", "NO_COLOR": "1"})
    finally:
        os.close(master)
        os.close(slave)


def test_columns_is_respected_without_a_terminal():
    text = render_for(Ascii(), SAMPLE, {"COLUMNS": "50"})
    assert max(map(len, text.splitlines())) <= 50
    assert render_for(Ascii(), SAMPLE, {"COLUMNS": "many"})


def test_rows_call_a_file_what_the_sentences_call_it():
    assert " project/train.py:88 evaluate()" in render(
        dataclasses.replace(SAMPLE, file_names=(("/home/me/project/train.py", "project/train.py"),))
    )


def test_the_processes_of_several_culprits_are_told_by_host():
    processes = tuple(CulpritProcess(rank, 4700 + rank, "ab"[rank > 2], "rank") for rank in range(8))
    text = render(dataclasses.replace(SAMPLE, culprit_processes=processes))
    assert "process    pids 4700 (rank 0), 4701 (rank 1), 4702 (rank 2) on a; pids 4703 (rank 3)," in text
    assert "4706 (rank 6) and 1 more on b" in text


@pytest.mark.parametrize(
    ("ranks", "folded", "named"),
    [
        ((), "", "no rank"),
        ((2,), "2", "rank 2"),
        ((1, 0), "0,1", "ranks 0 and 1"),
        ((0, 1, 3), "0,1,3", "ranks 0, 1 and 3"),
        ((0, 1, 2, 3, 4, 5, 7), "0-5,7", "ranks 0-5,7"),
        ((0, 2, 4, 6, 8), "0,2,4,6,8", "ranks 0,2,4,6,8"),
        (
            range(3, 84, 4),
            ",".join(map(str, range(3, 84, 4))),
            "21 ranks (3,7,11 … 83; list in the JSON)",
        ),
    ],
)
def test_ranks_in_words(ranks, folded, named):
    assert fold_ranks(ranks) == folded
    assert name_ranks(ranks) == named


@given(st.sets(st.integers(0, 300)))
def test_folded_ranks_can_be_unfolded(ranks):
    unfolded = set()
    for part in filter(None, fold_ranks(ranks).split(",")):
        first, _, last = part.partition("-")
        unfolded |= set(range(int(first), int(last or first) + 1))
    assert unfolded == ranks


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 s"),
        (31.2, "31 s"),
        (119.6, "2 min"),
        (125, "2 min 5 s"),
        (7380, "2 h 3 min"),
        (float("inf"), None),
    ],
)
def test_durations(seconds, text):
    assert name_duration(seconds) == text if text else name_duration(seconds)


_INJECT = "`hangdoc attach 7 --inject` reads the ranks' earlier calls"


def attached(*silent: int, **changes) -> Diagnosis:
    """The sample's verdict, less than certain, without the calls of these ranks."""
    notes = tuple(Unavailable("journal", NO_PROBE, _INJECT, rank) for rank in silent)
    return dataclasses.replace(SAMPLE, unavailable=notes, **{"confidence": "possible", "unseen": (), **changes})


def test_what_is_missing_is_the_past_so_the_report_ends_with_the_command_that_gets_it():
    ranks = [activity.rank for activity in SAMPLE.ranks]
    lines = render(attached(*ranks)).splitlines()
    assert lines[-1].split(maxsplit=1) == ["next", f"{_INJECT}."]
    assert sum("--inject" in line for line in lines) == 1


def test_a_verdict_that_needs_no_past_does_not_send_for_it():
    ranks = [activity.rank for activity in SAMPLE.ranks]
    for found in (attached(*ranks, confidence="certain"), attached(*ranks[1:]), attached(*ranks, outcome="slow")):
        assert not any(line.lstrip().startswith("next") for line in render(found).splitlines())


def test_a_fix_that_is_the_same_command_is_not_said_twice():
    ranks = [activity.rank for activity in SAMPLE.ranks]
    lines = render(attached(*ranks, fix=f"{_INJECT}.")).splitlines()
    assert sum("--inject" in line for line in lines) == 1


def test_what_decides_nothing_is_folded_behind_v():
    evidence = (
        *SAMPLE.evidence,
        Evidence("port", (0,), "3 listening sockets, 3 needed", decides=False),
        *(Evidence("log", (1,), f"rank 1 wrote {n}") for n in range(9)),
    )
    stack = (Frame("/venv/torch.py", 7, "all_gather"), Frame(FILE, 88, "evaluate"))
    ranks = tuple(dataclasses.replace(each, stack=stack) for each in SAMPLE.ranks)
    long = dataclasses.replace(SAMPLE, evidence=evidence, ranks=ranks)
    folded, whole = render(long), render(long, verbose=True)
    assert folded.rstrip().endswith("more with -v")
    assert "3 needed" not in folded
    assert "wrote 8" not in folded
    assert "more with -v" not in whole
    assert "3 listening sockets, 3 needed" in whole
    assert "wrote 8" in whole
    assert "all_gather  torch.py:7\n" in whole
    bare = dataclasses.replace(SAMPLE, ranks=tuple(dataclasses.replace(each, stack=()) for each in SAMPLE.ranks))
    assert "more with -v" not in render(dataclasses.replace(bare, evidence=evidence[:1]))


def test_color_is_what_the_option_says():
    for environment in ({}, {"NO_COLOR": "1"}):
        assert "\x1b[" in render_for(io.StringIO(), SAMPLE, environment, color="always")
    for environment in ({}, {"FORCE_COLOR": "1"}):
        assert "\x1b" not in render_for(io.StringIO(), SAMPLE, environment, color="never")


def test_places_are_links_on_a_terminal_of_the_jobs_own_host():
    import os
    import socket

    here = dataclasses.replace(
        SAMPLE, ranks=tuple(dataclasses.replace(each, host=socket.gethostname()) for each in SAMPLE.ranks)
    )
    master, slave = os.openpty()
    try:
        with open(slave, "w", encoding="utf-8", closefd=False) as stream:
            linked = render_for(stream, here, {"TERM": "xterm"})
            target = f"file://{socket.gethostname()}{FILE}#88"
            assert re.search(rf"\x1b\]8;id=\d+;{re.escape(target)}\x1b\\", linked)
            for environment in ({"TERM": "linux"}, {"TERM": "dumb"}, {"TERM": "xterm", "NO_COLOR": "1"}):
                assert "\x1b]8" not in render_for(stream, here, environment)
            assert "\x1b]8" not in render_for(stream, SAMPLE, {"TERM": "xterm"})  # seen on node1
    finally:
        os.close(master)
        os.close(slave)
    assert "\x1b]8" not in render_for(io.StringIO(), here, {"TERM": "xterm"}, color="always")


@pytest.mark.parametrize(
    "file",
    [
        "train.py",
        "<string>",
        "/job/../etc/train.py",
        "/job/run.sh",
        "/job/\x1b]8;;x\x07/train.py",
        "/job/a\u202eb.py",
        "/job/\nb.py",
        "/job/\udcff.py",
        f"/{'x' * 2000}.py",
    ],
)
def test_no_link_for_a_name_that_may_mislead(file):
    assert link_to(file, 3, "node1") == ""


def test_a_link_is_ascii_whatever_the_name_is():
    assert link_to("/job/ä ;%.py", 3, "node1") == "file://node1/job/%C3%A4%20%3B%25.py#3"
