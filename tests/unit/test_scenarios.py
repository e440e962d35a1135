"""Headers of the scenarios are read right, and verdicts are compared without mercy."""

from __future__ import annotations

import pytest
from sample_diagnosis import SAMPLE

from hangdoc import scenarios
from hangdoc.errors import UsageError
from hangdoc.model.catalogue import catalogue
from hangdoc.model.document import diagnosis_document
from hangdoc.scenarios import Scenario, compare, compare_fixed, find, named_lines, read

SCRIPT = '''"""A title.

A story.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD102"
# culprits = [2]
# lines = [88]
# watch = "--give-up-after 8"
# env = {TWO = 2}
# timeout = 30
# ///
'''


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_header_is_read(script):
    scenario = read(script)
    assert scenario == Scenario(
        name="train",
        path=script,
        story="A title.\n\nA story.",
        launch="torchrun --standalone --nproc-per-node 4",
        outcome="hang",
        cause="HD102",
        culprits=(2,),
        lines=(88,),
        environment=(("TWO", "2"),),
        watch=("--give-up-after", "8"),
        timeout=30.0,
    )
    assert scenario.title == "A title."


def test_a_header_says_which_packages_it_needs(script):
    assert read(script).missing == ()
    script.write_text(SCRIPT.replace("# timeout = 30", '# requires = ["json", "no_such_package.core"]'))
    assert read(script).missing == ("no_such_package.core",)


@pytest.mark.parametrize("text", ["", "import os\n", "# /// script\n# a = 1\n# ///\n", "# /// hangdoc\nimport os\n"])
def test_a_script_without_a_header_is_no_scenario(tmp_path, text):
    (tmp_path / "x.py").write_text(text)
    assert read(tmp_path / "x.py") is None


@pytest.mark.parametrize("text", ["# /// hangdoc\n# launch = \n# ///\n", "# /// hangdoc\n# launch = 'x'\n# ///\n"])
def test_a_bad_header_is_named(tmp_path, text):
    (tmp_path / "x.py").write_text(text)
    with pytest.raises(UsageError, match=r"x\.py"):
        read(tmp_path / "x.py")


def test_the_expected_verdict_agrees(script):
    rows = compare(read(script), diagnosis_document(SAMPLE))
    assert [row.what for row in rows] == ["outcome", "cause", "culprits", "line"]
    assert all(row.agrees for row in rows)


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"outcome": "slow"}, "outcome"),
        ({"cause": None}, "cause"),
        ({"cause": {"code": "HD101"}}, "cause"),
        ({"culprits": []}, "culprits"),
        ({"culprits": [2, 3]}, "culprits"),
        ({"divergence": None, "ranks": [], "verdict": "", "why": "", "fix": ""}, "line"),
    ],
)
def test_another_verdict_does_not(script, change, wrong):
    rows = compare(read(script), {**diagnosis_document(SAMPLE), **change})
    assert [row.what for row in rows if not row.agrees] == [wrong]


def test_no_report_agrees_with_nothing(script):
    assert not any(row.agrees for row in compare(read(script), {}))


def test_lines_of_other_files_do_not_count():
    assert named_lines(diagnosis_document(SAMPLE), "train.py") == {57, 61, 88}
    assert named_lines(diagnosis_document(SAMPLE), "rain.py") == set()
    assert named_lines({"verdict": "see mytrain.py:3"}, "train.py") == set()


def test_the_fixed_variant_must_end_well():
    assert all(row.agrees for row in compare_fixed({}, 0))
    assert all(row.agrees for row in compare_fixed({"outcome": "slow"}, 0))
    for document, status in (({}, 1), ({}, None), ({"outcome": "hang"}, 0), ({"outcome": "crashed"}, 0)):
        assert not all(row.agrees for row in compare_fixed(document, status))


@pytest.mark.parametrize("scenario", scenarios.available(), ids=lambda scenario: scenario.name)
def test_every_scenario_of_ours_is_in_order(scenario):
    assert scenario.outcome in ("hang", "slow", "crashed")
    assert not scenario.cause or scenario.cause in catalogue()
    assert scenario.lines
    assert max(scenario.lines) <= len(scenario.path.read_text().splitlines())
    assert scenario.story
    assert scenario.source
    assert scenarios.command(scenario)[-1] == str(scenario.path)
    assert "FIXED" in scenario.path.read_text()


def test_a_misspelt_scenario_names_the_nearest():
    with pytest.raises(UsageError) as caught:
        find("uneven_batch")
    assert "uneven_batches" in caught.value.remedy
