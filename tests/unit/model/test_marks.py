"""Marks tell that two places of a program hold the same hidden text, and not which one."""

from __future__ import annotations

import re

import pytest

from hangdoc.capture.read.scrubbing import Marking, scrub
from hangdoc.model.marks import Marks, shown, unmarked
from hangdoc.model.snapshot import Module, SourceText

PROGRAM = """\
def send(store, rank):
    store.set("ready/a", b"1x")
    store.wait(["ready/a", f"done/{rank}/all"])
    print("the store is ready")
    password = "hunter2-hunter2"
    store.set("hf_abcdefghijklmnopqrstuvwxyzABCDEFGH", "")
    return store.get("ready"), open("ready"), f"{rank}{{}}"
"""
MARK = r"…[0-9a-f]{8}"


def marked(marks: Marks, text: str = PROGRAM) -> str:
    return scrub(text, marking=Marking(marks))


def test_the_same_text_has_one_mark_and_others_have_others() -> None:
    lines = marked(Marks()).split("\n")
    (key,) = re.findall(f'"({MARK})"', lines[1])
    assert re.search(r'b"\.\.\.[0-9a-f]{8}"', lines[1])
    again, before, after = re.findall(MARK, lines[2])
    assert again == key
    assert len({key, before, after}) == 3
    assert f'f"{before}{{rank}}{after}"' in lines[2]


def test_sentences_and_secrets_have_none() -> None:
    lines = marked(Marks()).split("\n")
    assert lines[3].strip() == 'print("…")'
    assert lines[4].strip() == 'password = "…"'
    assert lines[5].strip() == 'store.set("…", "")'


def test_a_word_that_is_shown_in_one_place_is_known_in_another() -> None:
    marking = Marking(Marks())
    line = scrub(PROGRAM, marking=marking).split("\n")[6]
    hidden, _ = re.findall(MARK, line)
    assert 'get("ready")' in line
    assert marking.words == {"ready": hidden[1:]}


def test_another_capture_has_other_marks_and_the_same_one_can_make_them_again() -> None:
    marks = Marks()
    assert marks.of("ready/a") == Marks(marks.name).of("ready/a")
    assert marks.of("ready/a") != Marks().of("ready/a")
    assert marks.name not in marks.of("ready/a")


@pytest.mark.parametrize("text", [PROGRAM, 'f"a b{x}c"', 'x = "…" "..."', "b'...deadbeef' '...deadbeef'", 'f"{x}…{y}"'])
def test_without_its_marks_code_is_shown_as_ever(text: str) -> None:
    assert unmarked(marked(Marks(), text)) == scrub(text)


def test_texts_that_are_kept_get_no_marks() -> None:
    assert "…" not in scrub('store.set("ready/a", 1)', keep_strings=True, marking=Marking(Marks()))


def test_a_whole_module_is_shown_as_a_piece_of_source() -> None:
    module = Module("/job/train.py", "sha256:0", marked(Marks()), "9c0d")
    assert shown(module) == SourceText("/job/train.py", "<module>", 1, scrub(PROGRAM))
