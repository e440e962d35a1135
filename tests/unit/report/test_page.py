"""The HTML page: what is in it, that nothing of the job becomes markup, and that a large job stays small."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cases import case, names
from sample_diagnosis import SAMPLE

from hangdoc import api
from hangdoc.model.diagnosis import Activity, CallCell, CallRow, CallTable, Diagnosis, Wait
from hangdoc.model.network import ListeningPort
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, LogTail, RankSnapshot
from hangdoc.report import write
from hangdoc.report.page import render
from hangdoc.report.page.call_tree import call_tree
from hangdoc.report.page.wait_graph import draw

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=y>{{ 7*7 }}</style></pre>&\x1b[31m\u202e"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "p", "strong", "span", "h1", "h2", "h3", "div", "code", "mark"),
    *("dl", "dt", "dd", "table", "tr", "td", "th", "svg", "defs", "marker", "path", "line", "g", "rect", "text", "ul"),
    *("li", "b", "details", "summary", "pre"),
}
ATTRIBUTES = {
    *("lang", "charset", "name", "content", "http-equiv", "class", "title", "viewbox", "width", "height", "role"),
    *("aria-label", "id", "refx", "refy", "markerwidth", "markerheight", "orient", "d", "x", "y", "x1", "y1", "x2"),
    *("y2", "rx", "marker-end", "text-anchor", "font-weight", "open", "colspan"),
}


class Seen(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_sample_says_what_the_terminal_says() -> None:
    seen = Seen(render(SAMPLE))
    for text in (SAMPLE.verdict, "for batch in loader:", "ended on rank 2", "HD102", "pid 4711 on node1"):
        assert text in seen.text


@pytest.mark.parametrize("name", names()[::16])
def test_a_page_of_each_kind_of_case_is_plain_markup(name: str) -> None:
    job = api.load(case(name))
    seen = Seen(render(api.diagnose(job), job))
    assert seen.tags <= TAGS
    assert seen.attributes <= ATTRIBUTES


def hostile() -> tuple[Diagnosis, JobSnapshot]:
    frame = Frame(f"/x/{HOSTILE}.py", 7, HOSTILE)
    excerpts = tuple(
        dataclasses.replace(
            excerpt,
            file=HOSTILE,
            function=HOSTILE,
            lines=tuple(dataclasses.replace(line, text=HOSTILE, notes=(HOSTILE,)) for line in excerpt.lines),
        )
        for excerpt in SAMPLE.code
    )
    table = CallTable(HOSTILE, (0, 1), (1,), (CallRow((0,), (CallCell(HOSTILE, HOSTILE, True),), True),), 1)
    ranks = tuple(
        Activity(rank, HOSTILE, 1, SAMPLE.ranks[0].kind, HOSTILE * (rank + 1), frame, (frame,)) for rank in range(3)
    )
    diagnosis = dataclasses.replace(
        SAMPLE,
        verdict=HOSTILE,
        why=HOSTILE,
        fix=HOSTILE,
        command=(HOSTILE, HOSTILE + ".py"),
        code=excerpts,
        calls=(table,),
        ranks=ranks,
        waits=(Wait(0, (1,), HOSTILE, HOSTILE),),
    )
    look = ProcessState(1.0, "S", threads=(Thread(1, HOSTILE, "S", frames=(frame,)),))
    rank = RankSnapshot(
        0, HOSTILE, "probe", process=Process(1, 0, "rank", looks=(look,)), log=LogTail(HOSTILE, (HOSTILE,) * 3)
    )
    return diagnosis, JobSnapshot(1.0, "watch", ranks=(rank,))


def test_nothing_of_the_job_becomes_markup() -> None:
    text = render(*hostile())
    seen = Seen(text)
    assert seen.tags <= TAGS
    assert seen.attributes <= ATTRIBUTES
    assert "{{ 7*7 }}" in seen.text
    assert not {"\x1b", "\u202e"} & set(text)


def test_a_page_of_four_thousand_ranks_is_small() -> None:
    places = [Frame("/job/train.py", number, "step") for number in range(200)]
    ranks = tuple(
        Activity(rank, "h", rank, SAMPLE.ranks[0].kind, f"all_reduce #{rank % 200}", places[rank % 200], places[:20])
        for rank in range(4096)
    )
    look = [ProcessState(1.0, "S", threads=(Thread(1, "", "S", frames=tuple(places[n : n + 30])),)) for n in range(150)]
    job = JobSnapshot(
        1.0,
        "watch",
        ranks=tuple(
            RankSnapshot(
                rank,
                "h",
                "probe",
                process=Process(rank + 1, 0, "rank", looks=(look[rank % 150],)),
                log=LogTail("/log", ("x" * 200,) * 40),
            )
            for rank in range(4096)
        ),
    )
    waits = tuple(Wait(rank, (7,), "", "journal") for rank in range(4096) if rank != 7)
    large = dataclasses.replace(SAMPLE, ranks=ranks, waits=waits, culprits=(7,), world_size=4096)
    assert len(render(large, job)) < 5_000_000


@pytest.mark.parametrize("suffix", [".html", ".txt", ".md"])
def test_as_many_culprits_as_ranks_take_no_longer_than_the_ranks(suffix: str, tmp_path: Path) -> None:
    count = 65_536
    ranks = tuple(dataclasses.replace(SAMPLE.ranks[0], rank=rank) for rank in range(count))
    everyone = tuple(range(count))
    large = dataclasses.replace(SAMPLE, ranks=ranks, culprits=everyone, divergence=None, world_size=count)
    begun = time.process_time()
    write(large, tmp_path / f"report{suffix}")
    assert time.process_time() - begun < 3
    assert (tmp_path / f"report{suffix}").exists()


def test_ranks_that_do_and_wait_alike_are_one_box() -> None:
    drawing = draw(SAMPLE)
    assert drawing is not None
    assert [(box.title, box.guilty) for box in drawing.boxes] == [("rank 2", True), ("ranks 0,1,3", False)]
    assert len(drawing.arrows) == 1


def test_the_tree_forks_where_the_stacks_do() -> None:
    main, train, save = Frame("a.py", 9, "main"), Frame("a.py", 5, "train"), Frame("a.py", 7, "save")
    stacks = {0: (train, main), 1: (train, main), 2: (save, main)}
    ranks = tuple(dataclasses.replace(SAMPLE.ranks[rank], stack=stack) for rank, stack in stacks.items())
    (root,) = call_tree(dataclasses.replace(SAMPLE, ranks=ranks))
    assert (root.ranks, root.frames) == ((0, 1, 2), (main,))
    assert [(each.ranks, each.frames, each.guilty) for each in root.below] == [
        ((0, 1), (train,), False),
        ((2,), (save,), True),
    ]


def test_a_process_ports_are_one_line() -> None:
    ports = [ListeningPort(7, "127.0.0.1", 29500 + number) for number in range(40)]
    host = HostSnapshot("node0", (*ports, ListeningPort(None, "::", 22)))
    page = Seen(render(SAMPLE, JobSnapshot(0.0, "watch", hosts=(host,))))
    assert page.text.count("pid 7 listens on") == 1
    assert "127.0.0.1:29500, 29501, " in page.text
    assert "29515 and 24 more" in page.text
    assert "a process listens on :::22" in page.text


@pytest.mark.parametrize(("diverged", "from_end"), [(12, True), (3, False), (None, False)])
def test_a_narrow_screen_shows_where_the_ranks_diverged(diverged: int | None, from_end: bool) -> None:
    cells = tuple(CallCell("all_reduce") for _ in range(12))
    table = CallTable("default_pg", (0, 1), tuple(range(1, 13)), (CallRow((0, 1), cells),), diverged)
    assert ('class="scroll from-end"' in render(dataclasses.replace(SAMPLE, calls=(table,)))) is from_end


def test_a_rank_whose_calls_were_not_seen_is_not_said_to_have_made_none() -> None:
    rows = (CallRow((0, 1), (CallCell("barrier"),)), CallRow((2,), (), seen=False))
    page = Seen(render(dataclasses.replace(SAMPLE, calls=(CallTable("default_pg", (0, 1, 2), (1,), rows, None),))))
    assert page.text.count("calls not seen") == 1


def test_the_branches_of_culprits_alone_are_marked() -> None:
    main, save = Frame("a.py", 9, "main"), Frame("a.py", 7, "save")
    ranks = tuple(dataclasses.replace(SAMPLE.ranks[rank], stack=(main,)) for rank in (0, 1))
    guilty = dataclasses.replace(SAMPLE.ranks[2], stack=(save, main))
    (root,) = call_tree(dataclasses.replace(SAMPLE, ranks=(*ranks, guilty)))
    assert (root.guilty, [each.guilty for each in root.below]) == (False, [True])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
@pytest.mark.parametrize("options", [["--window-size=1000,900"], ["--window-size=400,900"]], ids=["desk", "phone"])
def test_a_browser_lays_it_out_and_runs_nothing(options: list[str], tmp_path: Path) -> None:
    write(hostile()[0], tmp_path / "hang.html", hostile()[1])
    browser = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-quic"]
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    done = subprocess.run(
        [
            *browser,
            *quiet,
            f"--user-data-dir={tmp_path}/user",
            *options,
            "--dump-dom",
            (tmp_path / "hang.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    seen = Seen(done.stdout)
    assert seen.tags <= TAGS | {"tbody"}
    assert "alert(1)" in seen.text
