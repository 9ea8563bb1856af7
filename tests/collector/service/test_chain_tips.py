"""Answers of a wrong form to getchaintips give a NodeError in a sentence; a new kind of tip is `unknown`."""

from collections.abc import Iterator
from typing import Any

import pytest

from collector.errors import NodeError
from collector.service.chain_tips import ask_tips
from tests.collector.service.planted import PlantedNode

TIP = {"height": 7, "hash": "11" * 32, "branchlen": 2, "status": "headers-only"}


@pytest.fixture
def node() -> Iterator[PlantedNode]:
    """Start a server that gives the answers which a test sets."""
    made = PlantedNode()
    yield made
    made.close()


@pytest.mark.parametrize("name", ["height", "hash", "branchlen"])
@pytest.mark.parametrize("value", [None, -1, 1 << 40, 1.5, "x", [], {}], ids=repr)
def test_a_field_of_a_wrong_form_is_named(node: PlantedNode, name: str, value: Any) -> None:
    """Neither a negative height nor a hash that is none becomes a row."""
    node.results["getchaintips"] = [TIP | {name: value}]
    with pytest.raises(NodeError, match=f"getchaintips: {name} is"):
        ask_tips(node.client())


@pytest.mark.parametrize("answer", [{}, 7, "x", [7], [[]], [{}]], ids=repr)
def test_an_answer_that_is_no_list_of_tips_is_refused(node: PlantedNode, answer: Any) -> None:
    """The error names getchaintips."""
    node.results["getchaintips"] = answer
    with pytest.raises(NodeError, match="getchaintips"):
        ask_tips(node.client())


def test_a_kind_of_tip_that_we_do_not_know_is_kept(node: PlantedNode) -> None:
    """A later version of the node may name more kinds."""
    node.results["getchaintips"] = [TIP | {"status": "half-valid"}, TIP]
    assert [tip.status for tip in ask_tips(node.client()).tips] == ["unknown", "headers-only"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": None},
        {"status": 7},
        {"status": "active"},
        {"branchlen": 0},
        {"branchlen": 0, "status": "x"},
    ],
    ids=repr,
)
def test_a_tip_that_contradicts_itself_is_refused(node: PlantedNode, wrong: dict[str, Any]) -> None:
    """Only the active tip is on the active chain: a row that says otherwise would be a breach for good."""
    node.results["getchaintips"] = [TIP | wrong]
    with pytest.raises(NodeError, match="getchaintips: status is"):
        ask_tips(node.client())
