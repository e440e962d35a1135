"""What the package offers to programs and notebooks."""

from __future__ import annotations

import dataclasses
import json
from html.parser import HTMLParser

import pytest
from cases import case, diagnosed
from sample_diagnosis import SAMPLE

import hangdoc
from hangdoc.model.document import diagnosis_document
from hangdoc.report import page


def test_everything_that_is_promised_is_there() -> None:
    assert all(getattr(hangdoc, name) is not None for name in hangdoc.__all__)
    assert set(hangdoc.__all__) <= set(dir(hangdoc))
    assert all(getattr(hangdoc, name).__doc__ for name in hangdoc.__all__)
    with pytest.raises(AttributeError, match="diagnos"):
        hangdoc.diagnos  # noqa: B018


def test_a_diagnosis_prints_as_its_report() -> None:
    assert str(hangdoc.diagnose(case("uneven_batches"))) == diagnosed("uneven_batches").text


def test_a_diagnosis_gives_the_public_document() -> None:
    assert json.loads(SAMPLE.to_json()) == json.loads(json.dumps(diagnosis_document(SAMPLE)))


class _Frames(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_a_notebook_shows_the_page_in_a_frame_that_nothing_leaves() -> None:
    hostile = dataclasses.replace(SAMPLE, verdict="""x"></iframe><script>alert('1')</script>""")
    for diagnosis in (SAMPLE, hostile):
        parser = _Frames()
        parser.feed(diagnosis._repr_html_())
        ((tag, attributes),) = parser.found
        assert tag == "iframe"
        assert attributes["sandbox"] == ""
        assert attributes["srcdoc"] == page.render(diagnosis)


def test_a_failed_assertion_shows_one_line() -> None:
    diagnosis = hangdoc.diagnose(case("uneven_batches"))
    assert repr(diagnosis) == f"<Diagnosis hang HD102: {diagnosis.verdict}>"
