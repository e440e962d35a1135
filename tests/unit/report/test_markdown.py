"""The Markdown report: the terminal's words, and nothing from the job that Markdown or HTML would act on."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from cases import case, names
from sample_diagnosis import SAMPLE

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.report import markdown, write
from hangdoc.report.markdown import render

HOSTILE = "<script>alert(1)</script> [x](javascript:y) ![i](http://a/b) | # *b* _i_ @user\x1b[31m\nnext"


def prose(text: str) -> str:
    """The report without its fenced code and its own tags, and without what is escaped."""
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text).replace("<br>", "").replace("@<!-- -->", "")
    return re.sub(r"\\.|`[^`\n]*`", "", outside)


def test_the_sample() -> None:
    text = render(SAMPLE)
    assert text.startswith("### ✖ hang\n\n4 ranks · stalled 31 s · torchrun train.py\n\n**Rank 2 left the training")
    assert "57 │ for batch in loader:\n" in text
    assert "**why** `for batch in loader:`" in text
    assert r"| rank 2 | train.py:88 evaluate\(\) | all\_gather | default\_pg \#1042 |" in text
    assert "`hangdoc explain" not in text  # a command of the terminal's, told in words


@pytest.mark.parametrize("name", names()[::8])
def test_no_case_leaves_markup_in_the_prose(name: str) -> None:
    text = render(api.diagnose(api.load(case(name))))
    assert not re.search(r"<[a-z/]|\]\(", prose(text))


def hostile() -> Diagnosis:
    code = tuple(
        dataclasses.replace(
            excerpt,
            file=f"/x/{HOSTILE}",
            lines=tuple(dataclasses.replace(line, text=f"```\n{HOSTILE}") for line in excerpt.lines),
        )
        for excerpt in SAMPLE.code
    )
    ranks = tuple(dataclasses.replace(activity, text=HOSTILE, host=HOSTILE) for activity in SAMPLE.ranks)
    return dataclasses.replace(SAMPLE, verdict=HOSTILE, why=HOSTILE, code=code, ranks=ranks, divergence=None)


def test_text_of_the_job_stays_text() -> None:
    text = render(hostile())
    assert "\x1b" not in text
    assert not re.search(r"<[a-z/]|\]\(|@", prose(text))
    fence = re.search(r"(?m)^(`{4,})text$", text)
    assert fence is not None
    assert len(re.findall(rf"(?m)^{fence[1]}$", text)) == 1


def test_the_suffix_chooses_it(tmp_path: Path) -> None:
    write(SAMPLE, tmp_path / "hang.md")
    assert (tmp_path / "hang.md").read_text().startswith("### ✖ hang")


@pytest.mark.parametrize(
    "url", ["http://evil.example/x", "HTTPS://evil.example", "www.evil.example", "ftp://e.example"]
)
def test_addresses_of_the_job_are_no_links(url: str) -> None:
    text = markdown._prose(f"see {url} and ({url}), `{url}`")
    outside = text.replace(f"`{url}`", "")
    assert url not in outside.replace("\\", "")
    assert outside.replace("\\", "").replace("<!-- -->", "").count(url) == 2
