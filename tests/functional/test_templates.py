"""Test that a request for a template does not wait behind other requests to the node."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collector.blocks import fetcher
from collector.blocks.fetcher import ask_block
from collector.blocks.tracker import BlockAnswer
from collector.dataset.open import Dataset
from collector.dataset.schema import TEMPLATES, hash_bytes
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode
from collector.service import polls
from collector.service.polls import TemplateRows, ask_template
from tests.functional.running import collecting, settings_for, wait_for_log

pytestmark = pytest.mark.bitcoind
N_BLOCKS = 40
SLOWNESS_S = 0.05
PATIENCE_S = 20.0


def test_a_template_of_a_new_tip_is_taken_while_blocks_are_fetched(
    node: RegtestNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A template of the last tip is taken while many blocks are still to be fetched.

    The first of them waits for that template, but not for ever.
    """
    fetched_us: list[int] = []
    is_taken = threading.Event()

    def ask_and_note(client: RpcClient, **how: Any) -> TemplateRows:
        rows = ask_template(client, **how)
        if rows.template["height"] == last_height + 1:
            is_taken.set()
        return rows

    def ask_slowly(client: RpcClient, block_hash: bytes, *, raw: bool) -> BlockAnswer:
        if not fetched_us:
            is_taken.wait(PATIENCE_S)
        time.sleep(SLOWNESS_S)
        answer = ask_block(client, block_hash, raw=raw)
        fetched_us.append(time.time_ns() // 1000)
        return answer

    monkeypatch.setattr(fetcher, "ask_block", ask_slowly)
    monkeypatch.setattr(polls, "ask_template", ask_and_note)
    node.client().call("generatetodescriptor", 1, "raw(51)")  # the end of the initial download
    last_height = node.client().call("getblockcount") + N_BLOCKS
    settings = settings_for(tmp_path / "dataset", alpha=node).model_copy(
        update={"template_interval_s": 600.0}
    )
    with collecting(settings) as logs:
        wait_for_log(logs, "mempool.in_step")
        tip = node.client().call("generatetodescriptor", N_BLOCKS, "raw(51)")[-1]
        while len(fetched_us) < N_BLOCKS:
            time.sleep(SLOWNESS_S)
    rows = Dataset.open(tmp_path / "dataset", "regtest").read(TEMPLATES).to_pylist()
    taken = [row["taken_at"] for row in rows if row["prev_hash"] == hash_bytes(tip)]
    assert taken
    taken_us = round(min(taken).timestamp() * 1e6)
    assert sum(at_us > taken_us for at_us in fetched_us) > N_BLOCKS / 2
    assert {row["trigger"] for row in rows if row["taken_at"] == min(taken)} == {"tip"}
