"""How tests/accuracy/wins.py tells what a mechanism decides, on made histories, made code and three cases."""

from __future__ import annotations

import ast
import json
import os
import random
import subprocess
import sys
import textwrap

import pytest
from cases import case, names, row
from history import History, read_history
from hypothesis import given
from hypothesis import strategies as st
from left_out import BREAKS, Trial, apart, occurs
from mechanisms import Mechanism, all_mechanisms, functions, nothing, rows
from origins import ROOT, Origin, Shown, origins, origins_of, programs, sets_of_commits, telling_lines
from wins import as_json, counted, counts, drawn, effect, say, table, totals

from hangdoc import api

# --- the history ------------------------------------------------------------------------------------------------------

LOG = textwrap.dedent(
    """\
    \x01aaa 100 One module
    diff --git a/hangdoc/diagnosis/one.py b/hangdoc/diagnosis/one.py
    new file mode 100644
    --- /dev/null
    +++ b/hangdoc/diagnosis/one.py
    @@ -0,0 +1,2 @@
    +def first(case: Case) -> int | None:
    +def second(case: Case) -> int | None:
    \x01bbb 200 The module has another name
    diff --git a/hangdoc/diagnosis/one.py b/hangdoc/diagnosis/blame/two.py
    similarity index 90%
    rename from hangdoc/diagnosis/one.py
    rename to hangdoc/diagnosis/blame/two.py
    @@ -9,0 +10,1 @@
    +    async def third(self) -> None:
    diff --git a/tests/data/HD101/told.hangdoc b/tests/data/HD101/told.hangdoc
    new file mode 100644
    Binary files /dev/null and b/tests/data/HD101/told.hangdoc differ
    \x01ccc 300 A function moves, and a table has two rows
    diff --git a/hangdoc/diagnosis/blame/two.py b/hangdoc/diagnosis/blame/two.py
    @@ -2,1 +1,0 @@
    -def second(case: Case) -> int | None:
    diff --git a/hangdoc/diagnosis/blame/three.py b/hangdoc/diagnosis/blame/three.py
    new file mode 100644
    @@ -0,0 +1,1 @@
    +def second(case: Case, more: int) -> int | None:
    diff --git a/hangdoc/diagnosis/frames/landmarks.toml b/hangdoc/diagnosis/frames/landmarks.toml
    @@ -5,1 +5,6 @@
     file = "pdb.py"
    +function = ["set_trace", "interaction"]
    +[fills_store]
    +[[wait]]
    +pattern = 'c10d::Reducer::'
    @@ -20,2 +25,2 @@
    -file = "trainer/call.py"
    +file = "trainer/loop.py"
     function = ["fit"]
    """
).split("\n")


def test_what_is_renamed_or_moved_keeps_its_first_commit():
    past = read_history(LOG)
    assert [commit.hash for commit in past.commits] == ["aaa", "bbb", "ccc"]
    assert past.of("hangdoc/diagnosis/blame/two.py", "def first") == 0
    assert past.of("hangdoc/diagnosis/blame/two.py", "def third") == 1
    assert past.of("hangdoc/diagnosis/blame/three.py", "def second") == 0
    assert past.of("hangdoc/diagnosis/blame/three.py") == 2
    assert past.of("hangdoc/diagnosis/blame/three.py", "def first") is None
    assert past.added[1] == {"tests/data/HD101/told.hangdoc"}
    assert past.now == {"hangdoc/diagnosis/one.py": "hangdoc/diagnosis/blame/two.py"}


@pytest.mark.parametrize(
    "thing", ["pdb.py:set_trace", "pdb.py:interaction", "trainer/loop.py:fit", "[fills_store]", "c10d::Reducer::"]
)
def test_rows_of_a_table_are_known_by_what_they_look_for(thing):
    assert read_history(LOG).of("hangdoc/diagnosis/frames/landmarks.toml", thing) == 2


# --- programs and origins ---------------------------------------------------------------------------------------------


def _program(seed: int, lines: int = 40) -> list[str]:
    return [f"total_{seed}_{number} = work(total, {number})" for number in range(lines)]


@given(st.lists(st.integers(0, 39), min_size=1, max_size=40, unique=True), st.integers(1, 5))
def test_a_part_of_a_program_is_of_it_under_its_name_and_other_programs_are_not(kept, others):
    whole = _program(0)
    part = Shown(frozenset(whole[number] for number in kept), frozenset({"train"}), "attach")
    shown = {"a_case": part, "scenarios/train.py": Shown(frozenset(whole), frozenset({"train"}))}
    shown |= {f"other_{n}": Shown(frozenset(_program(n)), frozenset({"train"}), "watch") for n in range(1, others + 1)}
    found = programs(shown)
    assert found["a_case"] == found["scenarios/train.py"] == "scenarios/train.py"
    assert [found[f"other_{n}"] for n in range(1, others + 1)] == [f"other_{n}" for n in range(1, others + 1)]


def test_a_few_common_lines_make_no_program_under_another_name():
    boilerplate = frozenset(_program(0, 6))
    found = programs({"one": Shown(boilerplate, frozenset({"a"})), "two": Shown(boilerplate, frozenset({"b"}))})
    assert found == {"one": "one", "two": "two"}


def test_a_case_without_source_is_known_by_its_script():
    found = programs(
        {
            "no_source": Shown(frozenset(), frozenset({"train"}), "watch"),
            "scenarios/train.py": Shown(frozenset(_program(0)), frozenset({"train"})),
            "dump": Shown(frozenset(), frozenset(), "dump"),
        }
    )
    assert found == {"no_source": "scenarios/train.py", "scenarios/train.py": "scenarios/train.py", "dump": "dump"}


def test_lines_with_literals_tell_nothing():
    text = 'def main():\n    # a comment of the author\n    print("a secret of the job")\n    total = work(total, step)'
    assert telling_lines(text) == {"total = work(total, step)"}


def test_the_sets_of_a_commit_follow_from_how_many_hangs_they_have():
    assert sets_of_commits([20, 20, 21], [(3, 39), (8, 21)]) == {3: (1, 2), 8: (3,)}


@given(st.lists(st.lists(st.integers(15, 30), min_size=1, max_size=3), min_size=1, max_size=9), st.randoms())
def test_every_set_belongs_to_the_commit_that_brought_it(commits, chance):
    """Headers that were corrected since make the sums differ a little."""
    in_guide = [hangs for sets in commits for hangs in sets]
    slack = [chance.choice((0, 0, 0, -1, 1)) for _ in commits]
    brought = [(place, sum(sets) + slack[place]) for place, sets in enumerate(commits)]
    found = sets_of_commits(in_guide, brought)
    assert [len(found[place]) for place in range(len(commits))] == [len(sets) for sets in commits]
    assert [number for place in sorted(found) for number in found[place]] == list(range(1, len(in_guide) + 1))


def test_an_origin_follows_from_where_the_program_lies():
    lines = {name: frozenset(_program(seed)) for seed, name in enumerate(("held", "scene", "own"))}
    cases = {name: (Shown(lines[name], frozenset({name}), "watch"), f"tests/data/{name}.hangdoc") for name in lines}
    cases["folder"] = (Shown(frozenset(), frozenset(), "dump"), "tests/data/folder.hangdoc")
    cases["nothing"] = (Shown(frozenset(), frozenset(), "watch"), "tests/data/nothing.hangdoc")
    files = {
        "tests/accuracy/libraries/held.py": Shown(lines["held"], frozenset({"held"})),
        "scenarios/scene.py": Shown(lines["scene"], frozenset({"scene"})),
    }
    past = History(first={("scenarios/scene.py", ""): 5, ("tests/data/scene.hangdoc", ""): 9})
    found = origins(cases, files, {"tests/accuracy/libraries/held.py": "held-out 3"}, past)
    assert {name: each.origin for name, each in found.items()} == {
        "held": "held-out 3",
        "scene": "scenario",
        "own": "practice",
        "folder": "dumps",
        "nothing": "unknown",
    }
    assert found["scene"] == Origin("scenario", "scenarios/scene.py", 5)
    assert found["own"].place is None


def test_the_rows_have_the_origin_that_the_history_tells():
    """As ``python tests/accuracy/origins.py --fill`` writes them, which a new case needs once."""
    sample = random.Random(1).sample(names(), 80)
    told = origins_of(ROOT, {name: case(name) for name in sample})
    if told is None:
        pytest.skip("no checkout with its whole history")
    found, _ = told
    assert {name: row(name).get("origin") for name in sample} == {name: found[name].origin for name in sample}


# --- mechanisms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("signature", "answer"),
    [
        ("(case: Case) -> Blame[Diverged] | None", "None"),
        ("(case: Case) -> None", ""),
        ("(case: Case) -> int", ""),
        ("(case: Case) -> bool", "False"),
        ("(case: Case) -> list[int]", "[]"),
        ("(case: Case) -> tuple[int, ...]", "()"),
        ("(case: Case) -> Iterator[int]", "iter(())"),
        ("(job: JobSnapshot) -> JobSnapshot", "job"),
        ("(case: Case, *, points: list[Point]) -> list[Point]", "points"),
        ("(name: str) -> str", "''"),
        ("(case)", ""),
    ],
)
def test_nothing_is_what_the_type_has_for_it(signature, answer):
    (function,) = ast.parse(f"def f{signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    assert nothing(function) == answer


CODE = {
    "rules": """
        from hangdoc.diagnosis.registry import cause
        @cause("HD101", order=1)
        def named(case: Case) -> Finding: ...
        """,
    "registry": """
        def cause(code: str, *, order: int) -> Callable: ...
        """,
    "deciders": """
        from hangdoc.diagnosis.others import early, joined, source, tested, unused
        def listed(case: Case) -> Blame | None: ...
        def is_listed(case: Case) -> bool: ...
        DECIDERS = (listed, is_listed)
        def ask(case: Case) -> int:
            if (found := early(case)) is not None:
                return found
            if tested(case) or unused(case):
                return 1
            case = case.changed(case)
            return joined(case) or len([*source(case)])
        """,
    "others": """
        class Case:
            def changed(self, case: Case) -> Case: ...
            @cached_property
            def never(self) -> int | None: ...
        def early(case: Case) -> int | None: ...
        def joined(case: Case) -> int | None: ...
        def source(case: Case) -> list[int]: ...
        def tested(case: Case) -> bool: ...
        def unused(case: Case) -> bool: ...
        """,
}


def test_functions_that_are_asked_among_others_are_mechanisms():
    found = functions({name: textwrap.dedent(text) for name, text in CODE.items()})
    assert {each.key: each.nothing for each in found} == {
        "rules:named": "None",
        "deciders:listed": "None",
        "deciders:is_listed": "False",
        "others:early": "None",
        "others:joined": "None",
        "others:source": "[]",
        "others:Case.changed": "case",
    }


def test_all_rules_deciders_and_rows_are_mechanisms():
    from hangdoc.diagnosis.blame.deciders import DECIDERS
    from hangdoc.diagnosis.causes import registry

    keys = {each.key for each in all_mechanisms(ROOT)}
    asked = [rule.find for rule in registry.RULES] + list(DECIDERS[:-1])  # the last one has to answer
    assert {f"{f.__module__.removeprefix('hangdoc.diagnosis.')}:{f.__qualname__}" for f in asked} <= keys
    assert {"names.toml:[prompt_call]", "landmarks.toml:[[landmark]] pdb.py *", "kernel.toml:[sleep]"} <= keys


def test_a_row_is_known_by_its_place_in_the_table():
    text = '# words\n[[wait]]\npattern = "a"\n\n[[wait]]\npattern = "b"\n\n[named]\nnames = ["c"]\n'
    found = rows("native", text, {"wait": [{"pattern": "a"}, {"pattern": "b"}], "named": {"names": ["c"]}})
    assert [each.row for each in found] == [("native", "wait", 0), ("native", "wait", 1), ("native", "named", -1)]
    assert [each.things for each in found] == [("a",), ("b",), ("[named]",)]
    assert len({each.key for each in found}) == 3


@pytest.mark.parametrize(
    ("entry", "there"),
    [
        ({"names": ["store.get", "fetch"]}, True),
        ({"names": ["fetch"]}, False),
        ({"pattern": [r"^value = \w+\.get"]}, True),
        ({"pattern": r"get\(\)$"}, False),
        ({"file": "job/train.py", "function": ["*"]}, True),
        ({"file": "job/train.py", "function": ["main"]}, False),
        ({"name": "pt_autograd_"}, False),
    ],
)
def test_a_row_occurs_where_its_names_do(entry, there):
    assert occurs(entry, "/job/train.py\nvalue = store.get(key)") is there


# --- what leaving out does --------------------------------------------------------------------------------------------

WHOLE = {"right": ["cause", "culprits"], "said": {"cause": "HD101", "culprits": [1], "condition": None}}


@pytest.mark.parametrize(
    ("without", "does"),
    [
        (WHOLE, []),
        ({"right": ["cause"], "said": {"cause": "HD101", "culprits": [], "condition": None}}, ["lost", "culprits"]),
        ({"right": ["cause", "culprits", "line"], "said": {}}, ["gained", "line"]),
        ({**WHOLE, "said": {**WHOLE["said"], "condition": "if x:"}}, ["changed", "condition"]),
        (f"{BREAKS}: IndexError", [BREAKS, "IndexError"]),
        (BREAKS, [BREAKS, BREAKS]),
    ],
)
def test_an_effect_names_the_clauses(without, does):
    assert effect(WHOLE, without) == does


@pytest.mark.parametrize(
    ("mechanism", "own", "program", "does"),
    [
        (5, {"practice"}, Origin("practice", "p", 6), True),  # it came later
        (5, {"practice"}, Origin("practice", "p", 5), False),  # they came together
        (5, {"practice"}, Origin("practice", "p", 4), False),
        (5, {"practice"}, Origin("held-out 3", "p", 4), True),  # another set
        (5, set(), Origin("held-out 3", "p", 4), False),  # nobody knows what it was written for
        (None, {"practice"}, Origin("held-out 3", "p", 4), False),
        (5, {"practice"}, Origin("practice", "p", None), False),
    ],
)
def test_a_case_counts_if_the_mechanism_can_not_have_been_written_for_it(mechanism, own, program, does):
    assert counts(mechanism, own, program) is does


def test_variants_of_a_program_count_once():
    mechanism = Mechanism("blame.one", "first", 9, "hangdoc/diagnosis/blame/two.py", ("def first",), "None")
    idle = Mechanism("blame.one", "idle", 9, "hangdoc/diagnosis/blame/two.py", ("def idle",), "None")
    lost = {"right": ["cause"], "said": WHOLE["said"]}
    trials = {
        "told": Trial(WHOLE, {mechanism.key: lost, idle.key: WHOLE}),
        "told_attach": Trial(WHOLE, {mechanism.key: lost}),
        "other": Trial(WHOLE, {mechanism.key: f"{BREAKS}: KeyError"}),
    }
    found = {
        "told": Origin("practice", "told", 1),
        "told_attach": Origin("practice", "told", 1),
        "other": Origin("practice", "other", 2),
    }
    past = read_history(LOG)
    first, second = counted([mechanism, idle], trials, found, past)
    assert (first.answered, first.lost, first.counting, first.breaks) == (
        {"told", "other"},
        {"told"},
        {"told"},
        {"other"},
    )
    assert (second.answered, second.lost, second.cases) == ({"told"}, set(), {})
    figures = totals([first, second])
    assert (figures["decide 0 programs"], figures["decide 1"], figures["could go one by one, nothing lost"]) == (
        1,
        1,
        1,
    )
    assert json.loads(json.dumps(as_json(first, past)))["lost"] == ["told"]
    assert table([first, second], past).split("\n")[1].split()[:5] == ["blame.one:first", "9", "1970-01-01", "2", "1"]


@given(st.lists(st.sampled_from("abcdef"), max_size=20), st.integers(0, 9))
def test_a_sample_has_whole_programs_and_is_the_same_each_time(of, count):
    found = {f"case{number}": Origin("practice", program, number) for number, program in enumerate(of)}
    cases = drawn(found, count)
    chosen = {found[name].program for name in cases}
    assert len(chosen) == min(count, len(set(of)))
    assert sorted(cases) == sorted(name for name, each in found.items() if each.program in chosen)
    assert cases == drawn(found, count)
    assert sorted(drawn(found, None)) == sorted(found)


END_TO_END = """
import json, sys
sys.path[:0] = ["tests/accuracy"]
from wins import ROOT, all_mechanisms, effect, tried
wanted = ("blame.deciders", "calls.alignment", "kernel.toml", "condition.choice")
trials = tried([each for each in all_mechanisms(ROOT) if each.module in wanted], sys.argv[1:])
print(json.dumps({name: [trial.whole, {key: effect(trial.whole, one) for key, one in trial.without.items()}]
                  for name, trial in trials.items()}))
"""


@pytest.mark.parametrize(
    ("does", "said"), [(lambda: ["all", {"b": None}], b'["all", {"b": null}]'), (lambda: 1 / 0, b"")]
)
def test_a_process_that_fails_says_nothing(does, said):
    pipe, child = apart(does)
    with os.fdopen(pipe, "rb") as answer:
        assert answer.read() == said
    assert os.waitpid(child, 0)[1] == 0


def test_three_cases_without_what_decides_them():
    """In a process of its own: the mechanisms stay hooked there."""
    answer = subprocess.run(
        [sys.executable, "-c", END_TO_END, "mesh_crossed_by_items_attach", "amr", "all_arrived"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    found = json.loads(answer.stdout)
    assert sorted(found) == ["all_arrived", "amr", "mesh_crossed_by_items_attach"]
    for name, (whole, _) in found.items():
        job = api.load(case(name))
        assert whole == json.loads(json.dumps(say(name, row(name), job, api.diagnose(job))))  # as without the hooks
    mesh, amr = found["mesh_crossed_by_items_attach"][1], found["amr"][1]
    assert mesh["blame.deciders:items_in_other_order"] == ["lost", "culprits"]
    assert (
        "blame.deciders:items_in_other_order" not in amr
    )  # it has nothing to say there, so there is nothing to leave out
    assert amr["calls.alignment:Alignment.first"] == ["lost", "line"]
