"""Every saved case gets the verdict it was reviewed for, and the pinned facts and report. See tests/cases.py."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import difflib
import functools
import gzip
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor

import jsonschema
import pytest
from add_case import add_case, main, update, update_all
from cases import (
    DATA,
    ELSEWHERE,
    EXPECTED,
    PINNED,
    TEXTS,
    case,
    change_table,
    diagnosed,
    expectation,
    facts,
    features,
    home,
    laid_out,
    names,
    persons_word,
    row,
    table,
    text_path,
    unlike_pinned,
    with_text,
    write_rows,
)
from published_schema import SCHEMA, faults

from hangdoc import api
from hangdoc.diagnosis.causes import registry
from hangdoc.errors import BadSnapshot, UsageError
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.document import diagnosis_document, schema
from hangdoc.report.terminal import render

FULL = "break_of_outer_loop"
"""A case whose report has every part."""


@pytest.fixture(scope="module", autouse=True)
def elsewhere():
    """Another machine says the same."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in ELSEWHERE.items():
            patch.setenv(variable, value)
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="module", autouse=True)
def rules_answer_with_the_codes_that_they_declare():
    """Every rule that names a cause below. One without codes gives a verdict without a cause."""

    def held(rule):
        def find(*arguments):
            finding = rule.find(*arguments)
            assert finding is None or finding.code in (rule.codes or ("",)), rule.find
            return finding

        return dataclasses.replace(rule, find=find)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "RULES", [held(rule) for rule in registry.RULES])
        yield


@pytest.mark.parametrize("name", names())
def test_verdict_facts_and_report(name):
    """One test for all three: workers that shared them out would each make the diagnosis."""
    document = diagnosed(name).document
    expected, not_yet = persons_word(name)
    assert not_yet or expectation(document) == expected
    assert faults(document, SCHEMA) == []
    assert sorted(published().iter_errors(document), key=str) == []
    assert_pinned(name)
    if not_yet:
        fails_still(expectation(document), expected, not_yet)


def fails_still(said, expected, why):
    """Strict: an expectation that is met loses its mark."""
    assert said != expected, f"it is right now: take expected_failure out ({why})"
    pytest.xfail(why)


def test_an_expected_failure_is_strict():
    with pytest.raises(pytest.xfail.Exception, match="another outcome"):
        fails_still({"outcome": "hang"}, {"outcome": "slow"}, "another outcome")
    with pytest.raises(AssertionError, match="take expected_failure out"):
        fails_still({"outcome": "slow"}, {"outcome": "slow"}, "another outcome")


@functools.cache
def published():
    """What `hangdoc schema` prints, with nothing allowed beside what it names."""

    def closed(part):
        if isinstance(part, dict):
            more = {"additionalProperties": False} if "properties" in part else {}
            return {**{key: closed(value) for key, value in part.items()}, **more}
        return [closed(each) for each in part] if isinstance(part, list) else part

    return jsonschema.Draft202012Validator(closed(schema()))


def assert_pinned(name):
    for kind, texts in unlike_pinned(name, diagnosed(name)).items():
        changes = difflib.unified_diff(*(text.splitlines() for text in texts), "pinned", "now", lineterm="")
        update = f"if this is better: python tests/add_case.py --update {name}"
        pytest.fail("\n".join([f"the {kind} of {name}:", *changes, update]), pytrace=False)


@pytest.mark.parametrize("name", names()[::6])
def test_odd_data_gets_a_verdict_all_the_same(name):
    """Values replaced by others of their type: absurd, valid, and no reason for a traceback.

    Each case is tried with a few and with many of them; together the cases see every number often.
    """
    chance = random.Random(name)
    data = gzip.decompress(case(name).read_bytes())
    places = [place for place in leaves(json.loads(data)) if len(place) > 1]
    diagnosed = 0
    for count in (chance.choice((30, 300)), chance.choice((1, 2, 3)), 1, 1, 1, 1):
        if diagnosed and count == 1:
            break
        changed = json.loads(data)
        for container, key in (locate(changed, chance.choice(places)) for _ in range(count)):
            if container is not None:
                container[key] = other(container[key], chance)
        with contextlib.suppress(BadSnapshot):
            diagnosis = api.diagnose(snapshot_from_bytes(json.dumps(changed).encode()))
            assert render(diagnosis, verbose=True)
            assert faults(diagnosis_document(diagnosis), SCHEMA) == []
            diagnosed += 1
    assert diagnosed


def leaves(value, place=()):
    """The place of everything in ``value`` that is not a dict."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*place, key))
        return
    yield place
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*place, index))


def locate(document, place):
    """The container of ``place`` and its key there; (None, None) where an earlier change removed it."""
    try:
        for key in place[:-1]:
            document = document[key]
        document[place[-1]]
    except (KeyError, IndexError, TypeError):
        return None, None
    return document, place[-1]


def other(value, chance):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice((-1, 0, 1, value + 1, 10**9))
    if isinstance(value, float):
        return chance.choice((-1.0, 0.0, 1e300))
    if isinstance(value, str):
        return chance.choice(("", "\u202e", "x", "/a/b.py", "MainThread", "T", "<string>"))
    if isinstance(value, list):
        return chance.choice(([], value[:1], value[::-1], value + value))
    return value


def test_every_case_has_its_expectation_and_its_pins():
    """Each in the folder of its cause, under a name of its own, and nothing else lies there."""
    assert sorted(set(names())) == names()
    snapshots = {home(row(name)) / f"{name}.hangdoc" for name in names()}
    tables = {path.with_name(kind) for path in snapshots for kind in (EXPECTED, PINNED)}
    texts = {path for path in DATA.rglob("*.txt") if path.with_suffix(".hangdoc") in snapshots}
    assert {path for path in DATA.rglob("*") if path.is_file()} == snapshots | tables | texts
    for path in tables:
        assert table(path).keys() == {each.stem for each in snapshots if each.parent == path.parent}
        assert path.read_text(encoding="utf-8") == laid_out(table(path), path.name), "one row a case, in order"


def test_few_cases_have_their_report_pinned_and_those_show_what_all_do():
    """A feature that no report shows: python tests/add_case.py --update --text NAME, for the first that has it."""
    shown = {name: features(table(case(name).with_name(PINNED))[name]) for name in names()}
    assert len(with_text()) <= TEXTS
    assert set().union(*(shown[name] for name in with_text())) == set().union(*shown.values())


def test_a_case_is_added_once_and_under_a_plain_name(tmp_path):
    (tmp_path / "bad.hangdoc").write_bytes(b"bad")
    with pytest.raises(BadSnapshot):
        add_case(tmp_path / "bad.hangdoc", "new", tmp_path)
    with pytest.raises(UsageError):
        add_case(tmp_path / "bad.hangdoc", "../new", tmp_path)
    (tmp_path / "HD101").mkdir()
    change_table(tmp_path / "HD101" / EXPECTED, {"old": {"cause": "HD101"}})
    with pytest.raises(UsageError):
        add_case(tmp_path / "bad.hangdoc", "old", tmp_path)


def test_an_update_changes_the_pins_and_no_expectation(tmp_path):
    saved = add_case(case("uneven_batches"), "new", tmp_path)
    assert saved == tmp_path / "HD102" / "new.hangdoc"
    pins, expected, report = saved.with_name(PINNED), saved.with_name(EXPECTED), text_path("new", tmp_path)
    assert not report.exists()
    assert update(["new"], tmp_path, text=True) == [str(report)]
    before = report.read_text(encoding="utf-8")
    assert before.startswith("hangdoc")
    word = '{"new": {"cause": "HD102", "culprits": [0]}}'
    expected.write_text(word)
    report.write_text("another report")
    change_table(pins, {"gone": {}, "new": {"outcome": "slow"}})
    (tmp_path / "HD102" / "gone.txt").touch()
    assert update(["new"], tmp_path) == [f"{pins}: new", str(report)]
    assert update_all(tmp_path) == [f"{pins}: gone", str(tmp_path / "HD102" / "gone.txt")]
    assert update_all(tmp_path) == []
    assert report.read_text(encoding="utf-8") == before
    assert table(pins).keys() == {"new"}
    assert table(pins)["new"]["culprits"] == [2]
    assert expected.read_text() == word
    with pytest.raises(UsageError):
        update(["unknown"], tmp_path)


def test_a_case_follows_its_expectation(tmp_path):
    """Whoever corrects the cause need not move the files."""
    old = add_case(case("uneven_batches"), "new", tmp_path, text=True).parent
    add_case(case("uneven_batches"), "other", tmp_path)
    write_rows({"new": {**row("new", tmp_path), "cause": None, "reviewed": "by somebody"}}, tmp_path)
    assert update(["new", "other"], tmp_path) == []
    files = {folder.name: sorted(path.name for path in folder.iterdir()) for folder in tmp_path.iterdir()}
    assert files["unnamed"] == [EXPECTED, "new.hangdoc", "new.txt", PINNED]
    assert files["HD102"] == [EXPECTED, "other.hangdoc", PINNED]
    assert row("new", tmp_path)["reviewed"] == "by somebody"
    write_rows({"other": {**row("other", tmp_path), "cause": None}}, tmp_path)
    update_all(tmp_path)
    assert not [*old.iterdir()]
    assert table(tmp_path / "unnamed" / PINNED).keys() == {"new", "other"}


def test_what_is_compared_is_four_fields_of_a_row(tmp_path):
    (tmp_path / "HD101").mkdir()
    (tmp_path / "HD101" / "one.hangdoc").touch()
    compared = {"outcome": "hang", "cause": "HD101", "culprits": [1], "lines": ["a.py:1"]}
    write_rows({"one": {**compared, "expected_failure": "why", "condition": "if x:"}}, tmp_path)
    assert persons_word("one", tmp_path) == (compared, "why")
    assert row("one", tmp_path)["condition"] == "if x:"
    write_rows({"one": compared}, tmp_path)
    assert persons_word("one", tmp_path) == (compared, "")
    write_rows({"one": None}, tmp_path)
    with pytest.raises(UsageError):
        row("one", tmp_path)


def test_two_that_change_one_table_lose_nothing_of_each_other(tmp_path):
    names = [f"case{number}" for number in range(40)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda name: change_table(tmp_path / EXPECTED, {name: {"cause": name}}), names))
    assert (tmp_path / EXPECTED).read_text().splitlines()[1:-1] == [
        f'  "{name}": {{"cause": "{name}"}}' + ("," if name != max(names) else "") for name in sorted(names)
    ]


def test_the_command_says_how_it_is_used(capsys):
    assert main([]) == main(["--update", "unknown"]) == UsageError.exit_status
    said = capsys.readouterr().err
    assert "--update [NAME" in said
    assert "there is no case unknown" in said


def test_facts_hold_no_sentence():
    """Other words in the document, the same facts; another condition, other facts."""
    document = copy.deepcopy(diagnosed("uneven_batches").document)
    before = facts(document)
    for key in ("verdict", "why", "fix", "sure"):
        document[key] = "other words"
    for item in (document["repair"], *document["ranks"], *document["evidence"]):
        item["text"] = "other words"
    for side in document["divergence"]["sides"]:
        side["note"] = "other words"
    assert facts(document) == before


@pytest.mark.parametrize(
    ("place", "other"),
    [
        (("outcome",), "slow"),
        (("cause", "code"), "HD101"),
        (("confidence",), "possible"),
        (("culprits",), [0]),
        (("alternatives",), [[0]]),
        (("ranks", 0, "rank"), 7),
        (("ranks", 0, "where", "line"), 1),
        (("divergence", "branch", "condition"), "while True:"),
        (("divergence", "branch", "values"), []),
        (("divergence", "sides", 0, "frame", "line"), 1),
        (("divergence", "sides", 0, "ranks"), [7]),
        (("repair", "edits"), []),
        (("evidence", 0, "kind"), "log"),
        (("evidence",), []),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_another_fact_shows(place, other):
    document = copy.deepcopy(diagnosed(FULL).document)
    before = facts(document)
    container, key = locate(document, place)
    assert container[key] != other
    container[key] = other
    assert facts(document) != before
