"""Strongly connected components, against the transitive closure of small graphs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.diagnosis.components import components


@given(st.dictionaries(st.integers(0, 7), st.lists(st.integers(0, 7), max_size=3), max_size=8))
@settings(deadline=None)
def test_nodes_are_together_if_they_lead_to_each_other_and_come_behind_what_they_lead_to(
    ahead: dict[int, list[int]],
) -> None:
    nodes = {*ahead, *(each for following in ahead.values() for each in following)}
    reached = {node: {node, *ahead.get(node, ())} for node in nodes}
    for _ in nodes:
        reached = {node: found.union(*(reached[each] for each in found)) for node, found in reached.items()}
    found = list(components(ahead))
    assert {node for component in found for node in component} == nodes
    assert len(found) == len({frozenset(each for each in nodes if reached[each] == reached[node]) for node in nodes})
    before: set[int] = set()
    for component in found:
        assert all(reached[node] >= component and reached[node] <= component | before for node in component)
        before |= component


def test_a_long_way_needs_no_recursion() -> None:
    ahead = {node: [(node + 1) % 50_000] for node in range(50_000)}
    assert [len(component) for component in components(ahead)] == [50_000]
