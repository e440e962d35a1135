from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.sidecar.logs.echoes import LEAST, MOST_REMEMBERED, Echo, Echoes
from hangdoc.sidecar.logs.folding import Said


def said(ranks: str, text: str, *, error: bool = False) -> Said:
    return Said(tuple(map(int, ranks)), text, error, text)


def shown(echoes: Echoes, *words: str) -> list[str]:
    """Of '12a': ranks 1 and 2 say 'a'. An echo is '12(0:abc)', of rank 0."""
    batch = [said(word[:-1], word[-1]) for word in words]
    found = []
    for each in echoes.collapse(batch):
        ranks = "".join(map(str, each.ranks))
        if isinstance(each, Echo):
            of = "".join(map(str, each.of))
            found.append(f"{ranks}({of}:{''.join(line.text for line in each.lines)})")
        else:
            found.append(ranks + each.text)
    return found


def test_a_late_banner_is_one_line() -> None:
    echoes = Echoes()
    assert shown(echoes, "0a", "0b", "0c", "0d") == ["0a", "0b", "0c", "0d"]
    assert shown(echoes, "12a", "12b", "12c", "12d", "12x") == ["12(0:abcd)", "12x"]
    assert shown(echoes, "3a", "3b", "3c") == ["3(0:abc)"]
    assert shown(echoes, "3a", "3b", "3c") == ["3a", "3b", "3c"], "it says it again"


def test_few_lines_are_shown() -> None:
    echoes = Echoes()
    assert shown(echoes, "0a", "0b", "1a", "1b") == ["0a", "0b", "1a", "1b"]


def test_lines_of_others_between_do_not_matter_but_lines_left_out_do() -> None:
    echoes = Echoes()
    shown(echoes, "0a", "1x", "0b", "0c", "0d")
    assert shown(echoes, "2a", "2b", "2c") == ["2(0:abc)"]
    assert shown(echoes, "3a", "3b", "3d") == ["3a", "3b", "3d"]


def test_a_rank_may_say_lines_of_its_own_first() -> None:
    echoes = Echoes()
    shown(echoes, "0w", "0a", "0b", "0c", "1x", "1w")
    assert shown(echoes, "1a", "1b", "1c") == ["1(0:abc)"]


def test_what_lies_before_a_line_of_both_is_not_repeated() -> None:
    echoes = Echoes()
    shown(echoes, "0a", "0b", "0c", "01x")
    assert shown(echoes, "1a", "1b", "1c") == ["1a", "1b", "1c"]


def test_errors_are_shown() -> None:
    echoes = Echoes()
    for rank in "01":
        batch = [said(rank, text, error=True) for text in "abcd"]
        assert list(echoes.collapse(batch)) == batch


heard = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["0", "1", "2", "12", "012", ""]), st.sampled_from("aaabbc"), st.integers(0, 20)),
        max_size=12,
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(heard)
def test_nothing_is_lost(batches: list[list[tuple[str, str, int]]]) -> None:
    """Every line is shown, in order, or in an echo of others' lines that stand together above."""
    echoes = Echoes()
    above: list[Said] = []
    for batch in batches:
        lines = deque(said(ranks, text, error=luck == 0) for ranks, text, luck in batch)
        for each in echoes.collapse(list(lines)):
            if not isinstance(each, Echo):
                assert each is not None
                assert each == lines.popleft()
                above.append(each)
                continue
            assert len(each.lines) >= LEAST
            assert [lines.popleft() for _ in each.lines] == list(each.lines)
            assert all(line.ranks == each.ranks and not line.error for line in each.lines)
            texts = [line.text for line in above if line.ranks == each.of]
            wanted = [line.text for line in each.lines]
            assert any(texts[i : i + len(wanted)] == wanted for i in range(len(texts)))
            assert not set(each.of) & set(each.ranks)
        assert not lines


def test_only_so_much_is_remembered() -> None:
    echoes = Echoes()
    shown(echoes, "0a", "0b", "0c")
    for number in range(MOST_REMEMBERED):
        list(echoes.collapse([said("0", str(number))]))
    assert shown(echoes, "1a", "1b", "1c") == ["1a", "1b", "1c"]
