"""Test the requests to a node: heights by time, and the progress that people see while they wait."""

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from collector.backfill import progress
from collector.backfill.node_work import DAY_S, check_chain, find_height, select_tasks
from collector.backfill.progress import ProgressView
from collector.backfill.selection import BlockSelection
from collector.backfill.store import WorkResult
from collector.errors import WrongChain
from collector.regtest import RegtestNode, find_bitcoind

BEGIN_S = 1_700_000_000


@pytest.fixture(scope="module")
def headers(node: RegtestNode) -> list[dict[str, int]]:
    """Return every header of the node's chain."""
    rpc = node.client()
    hashes = [rpc.call("getblockhash", height) for height in range(rpc.call("getblockcount") + 1)]
    return [rpc.call("getblockheader", block_hash) for block_hash in hashes]


@pytest.mark.bitcoind
def test_a_height_is_found_by_median_time(node: RegtestNode, headers: list[dict[str, int]]) -> None:
    """For each time, the height is that of the first block whose median time is not below it."""
    rpc = node.client()
    tip_height = len(headers) - 1
    for time_s in sorted({header["mediantime"] + step for header in headers[::9] for step in (0, 1)}):
        above = [header["height"] for header in headers if header["mediantime"] >= time_s]
        assert find_height(rpc, time_s, tip_height) == (above[0] if above else tip_height + 1)


@pytest.mark.bitcoind
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_selections_by_time_are_by_header_time(
    node: RegtestNode, headers: list[dict[str, int]], data: st.DataObject
) -> None:
    """A range of times selects exactly the blocks whose header time lies in it."""
    times = st.sampled_from([header["time"] for header in headers])
    selection = BlockSelection(from_time_s=data.draw(times), to_time_s=data.draw(times))

    found = [task.height for task in select_tasks(node.client(), selection, len(headers) - 1)]

    assert found == [header["height"] for header in headers if selection.has_time(header["time"])]


@pytest.mark.bitcoind
def test_blocks_after_a_pause_of_the_chain_are_selected() -> None:
    """Their median times are still those of the blocks before the pause."""
    with RegtestNode(find_bitcoind()) as paused:
        rpc = paused.client()
        for days, n_blocks in ((0, 12), (3, 8)):
            rpc.call("setmocktime", BEGIN_S + days * DAY_S)
            rpc.call("generatetodescriptor", n_blocks, "raw(51)")
        selection = BlockSelection(from_time_s=BEGIN_S + 2 * DAY_S)

        assert [task.height for task in select_tasks(rpc, selection, 20)] == list(range(13, 21))


@pytest.mark.bitcoind
def test_a_node_on_another_chain_is_refused(node: RegtestNode) -> None:
    """The error names both chains."""
    with pytest.raises(WrongChain, match="is on regtest, not on main"):
        check_chain(node.client(), "main")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_shows_height_rates_and_memory(
    is_terminal: bool,  # noqa: FBT001 - pytest passes it by name
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A terminal shows a bar, and anything else gets plain lines."""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=200)

    with ProgressView(console, 2) as view:
        view.scanned(1, 2)
        view.begin(1000)
        view.worked(WorkResult(n_blocks=1, n_tx=5000, block_bytes=250, last_height=654_321))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "654321" in text
    assert "25" in text
    for unit in ("tx/s", "MB/s", "GB memory"):
        assert unit in text
    assert ("\x1b" in text) is is_terminal
