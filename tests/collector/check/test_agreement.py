"""Test that one changed value that contradicts other rows is found by the check made for it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from collector.check import run
from collector.check.model import BREACH, OK, CheckResult
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from tests.collector.check.clean_view import CleanView, clean_view
from tests.collector.check.made_dataset import Rows, at_us, coinbase, header, make_all_rows, name, write
from tests.collector.check.test_check import change, double, drop

Plant = Callable[[Rows], None]
CHECKS = {each.__name__.removeprefix("check_"): each for each in run.CHECKS}


def result(dataset: Dataset, check: str, monkeypatch: pytest.MonkeyPatch) -> CheckResult:
    """Run only the check named `check` on a dataset and return its result."""
    monkeypatch.setattr(run, "CHECKS", (CHECKS[check],))
    return run.check(dataset)[-1]


def swap(table: str, one: int, other: int, *columns: str) -> Plant:
    """Return a change of the rows that swaps values between two rows of a table."""

    def plant(rows: Rows) -> None:
        first, second = rows[table][one], rows[table][other]
        for column in columns:
            first[column], second[column] = second[column], first[column]

    return plant


def both(*plants: Plant) -> Plant:
    """Return a change of the rows that makes several changes."""

    def plant(rows: Rows) -> None:
        for each in plants:
            each(rows)

    return plant


WITNESS = {"size_bytes": 110, "weight_wu": 410, "vsize_vb": 103}
OUTPUTS = [{"value_sat": 50, "script": b"\x51"}]
COMMITMENT = bytes.fromhex("6a24aa21a9ed") + name("w")
SHUTDOWN = {"end_reason": "shutdown"}
PLANTED: list[tuple[str, str, Plant]] = [
    # headers and trees
    ("hashes", "a version", change("blocks", 1, version=5)),
    ("hashes", "a parent", change("blocks", 0, prev_hash=name("x"))),
    ("hashes", "a merkle root", change("blocks", 1, merkle_root=name("x"))),
    ("hashes", "a time", change("blocks", 1, header_time=1_728_000_000)),
    ("hashes", "bits", change("blocks", 1, bits=0x207FFFFE)),
    ("hashes", "a nonce", change("blocks", 1, nonce=77)),
    ("hashes", "a txid", change("transactions", 2, txid=name("x"), wtxid=name("x"))),
    ("hashes", "an order of transactions", swap("transactions", 2, 3, "tx_index")),
    ("subsidies", "a subsidy", change("blocks", 1, subsidy_sat=2_500_000_000)),
    # a block and its transactions
    ("transactions", "inputs", change("blocks", 1, n_inputs=3)),
    ("transactions", "outputs", change("blocks", 1, n_outputs=4)),
    ("transactions", "transactions with witness", change("blocks", 1, n_segwit_tx=1)),
    ("transactions", "values", change("blocks", 1, output_value_sat=181)),
    ("transactions", "a coinbase", change("blocks", 1, coinbase_txid=name("x"))),
    ("transactions", "what a coinbase pays", change("blocks", 1, coinbase_value_sat=51)),
    ("transactions", "a size", change("blocks", 1, size_bytes=400)),
    ("transactions", "a weight", change("blocks", 1, weight_wu=1600)),
    (
        "transactions",
        "an effective feerate that nobody pays",
        change("transactions", 2, effective_feerate_sat_vb=9),
    ),
    # one row
    ("ranges", "a coinbase's outputs", change("blocks", 1, coinbase_outputs=OUTPUTS * 2)),
    ("ranges", "a coinbase's script", change("blocks", 1, coinbase_script=b"\x01")),
    ("ranges", "a commitment nobody made", change("blocks", 1, witness_commitment=name("w"))),
    (
        "ranges",
        "another commitment",
        change(
            "blocks",
            1,
            coinbase_outputs=[*OUTPUTS, {"value_sat": 0, "script": COMMITMENT}],
            witness_commitment=name("v"),
        ),
    ),
    ("ranges", "a witness that nobody has", change("transactions", 2, has_witness=True)),
    ("ranges", "a wtxid without a witness", change("transactions", 2, wtxid=name("x"))),
    ("ranges", "a witness that nobody admits", change("transactions", 2, **WITNESS)),
    ("ranges", "a broken stripped size", change("transactions", 2, size_bytes=101)),
    ("ranges", "inputs without room", change("transactions", 2, n_inputs=3)),
    ("ranges", "a lock time", change("transactions", 2, locktime=1 << 32)),
    ("ranges", "a coinbase with a fee", change("transactions", 1, effective_feerate_sat_vb=1.0)),
    ("ranges", "parents twice", change("transactions", 3, parents=[1, 1], n_inputs=2)),
    ("ranges", "a coinbase as parent", change("transactions", 3, parents=[0])),
    ("ranges", "a feerate that is too low", change("transactions", 2, effective_feerate_sat_vb=0.05)),
    ("ranges", "a number that nobody sent", change("mempool_txs", 4, mempool_sequence=9)),
    ("ranges", "a virtual size", change("mempool_txs", 1, vsize_vb=99)),
    ("ranges", "parents that are no ancestors", change("mempool_txs", 1, parents=[name("t1")])),
    ("ranges", "ancestors without size", change("mempool_txs", 1, ancestor_vsize_vb=99)),
    (
        "ranges",
        "an R for what was mined",
        change("mempool_events", 4, removal_reason="mined", replaced_by=None),
    ),
    ("ranges", "a block that was pulled", change("mempool_events", 7, event="C")),
    (
        "ranges",
        "a departure that was late",
        change("block_arrivals", 0, event="disconnected", is_catch_up=True),
    ),
    ("ranges", "settings that are no JSON", change("nodes", 0, settings="{")),
    ("ranges", "an A of what was replaced", change("mempool_events", 0, replaced_by=name("t1"))),
    # what others tell of the same
    ("arrivals", "a tip that did not arrive", change("nodes", 0, tip_hash=name("x"))),
    ("sessions", "a node of another chain", change("nodes", 0, chain="signet")),
    ("arrivals", "a tip at another height", change("nodes", 0, tip_height=101)),
    ("arrivals", "a template for another height", change("templates", 0, height=102)),
    ("arrivals", "a branch's tip at another height", change("chain_tips", 0, height=777)),
    ("templates", "fees of a template", change("templates", 0, fees_sat=21)),
    ("templates", "a weight in a template", change("template_txs", 0, weight_wu=404)),
    ("templates", "sigops in a template", change("template_txs", 0, n_sigops=5)),
    ("templates", "a transaction twice in a template", change("template_txs", 0, txid=name("t2"))),
    ("templates", "a session in a template", change("template_txs", 0, session="other")),
    ("copies", "a fee that was another in its block", change("mempool_txs", 0, fee_sat=11)),
    ("copies", "a size that was another in its block", change("mempool_txs", 0, size_bytes=101)),
    ("copies", "a txid that was another in its block", change("mempool_txs", 0, txid=name("x"))),
    ("sources", "labels without a source", drop("external_sources", 0)),
    ("sources", "a source without its labels", drop("external_pool_labels", 0)),
    # intervals and messages
    ("intervals", "counters that go back", change("coverage", 1, first_sequence=3, n_messages=4)),
    ("intervals", "counters that do not go on", change("coverage", 1, first_sequence=5, n_messages=2)),
    ("intervals", "more messages than counters", change("coverage", 4, n_messages=2)),
    ("intervals", "an end that is none", change("coverage", 0, **SHUTDOWN)),
    ("messages", "counters of the mempool", change("coverage", 3, last_sequence=7, n_messages=4)),
    ("first_seen", "a block that was not disconnected", change("block_arrivals", 0, event="disconnected")),
    ("first_seen", "a block that was not connected", change("mempool_events", 2, event="D")),
    (
        "first_seen",
        "an arrival without message",
        double("block_arrivals", 0, event_at=at_us(3)),
    ),
    (
        "moments",
        "a message before the one before it",
        change("mempool_events", 1, received_at=at_us(1) - 2_000_000),
    ),
    (
        "moments",
        "a message outside its interval",
        change("mempool_events", 6, received_at=at_us(6) + 2_000_000),
    ),
    ("tips", "a block that does not follow", change("mempool_events", 5, hash=header(100).block_hash)),
    ("tips", "a block disconnected that was not the tip", change("mempool_events", 5, event="D")),
    ("reasons", "a replacement that never entered", change("mempool_events", 4, replaced_by=name("x"))),
    ("reasons", "a replacement that came before", change("mempool_events", 4, replaced_by=name("t3"))),
    (
        "reasons",
        "a reorganisation without one",
        change("mempool_events", 4, removal_reason="reorged", replaced_by=None),
    ),
    (
        "reasons",
        "a conflict without a block",
        both(
            change("mempool_events", 4, removal_reason="conflict", replaced_by=None),
            change("mempool_events", 5, event="A"),
        ),
    ),
    ("rawblocks", "a block that was seen and is not there", drop("block_arrivals", 3)),
    ("rawblocks", "blocks that nobody has seen", change("coverage", 4, last_sequence=1, n_messages=2)),
    ("pulled", "an entry that was pulled and has no event", drop("mempool_events", 7)),
    ("pulled", "an event that was pulled and has no entry", drop("mempool_txs", 5)),
    ("pulled", "an event that is missing", change("mempool_events", 7, sequence=-2)),
    ("pulled", "an entry that is in no block", change("mempool_txs", 5, first_seen_kind="in_block")),
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CleanView]:
    """Open a dataset without a fault."""
    with clean_view(make_all_rows(), tmp_path_factory.mktemp("agreement")) as opened:
        yield opened


@pytest.mark.parametrize(("check", "what", "plant"), PLANTED, ids=[each[1] for each in PLANTED])
def test_what_does_not_agree_is_found(
    clean: CleanView, tmp_path: Path, check: str, what: str, plant: Plant
) -> None:
    """The named check finds the changed value; test_check shows that nothing is found without it."""
    rows = make_all_rows()
    plant(rows)
    with clean.changed(rows, tmp_path) as view:
        assert CHECKS[check](view).status == BREACH, what


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("block_arrivals", {"height": 999}),
        ("block_arrivals", {"prev_hash": name("x")}),
        ("block_arrivals", {"kind": "at_start", "height": 98}),
        ("templates", {"height": 55}),
        ("nodes", {"tip_height": 98}),
        ("chain_tips", {"height": 777}),
    ],
)
def test_a_wrong_height_or_parent_counts_once(
    clean: CleanView, tmp_path: Path, table: str, values: dict[str, Any]
) -> None:
    """A block has its own row and its child's, and a tip two that name it: what is wrong is one finding."""
    rows = make_all_rows()
    change(table, 0, **values)(rows)
    with clean.changed(rows, tmp_path) as view:
        assert CHECKS["arrivals"](view).n_found == 1


@pytest.mark.parametrize(
    ("chain", "height", "stated", "status"),
    [
        ("main", 230_000, 230_000, OK),
        ("main", 230_000, 229_940, BREACH),
        ("main", 227_930, 7, OK),  # before the rule
        ("signet", 16, 16, OK),
        ("testnet4", 17, 16, BREACH),
    ],
)
def test_a_coinbase_states_the_height_of_its_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, chain: str, height: int, stated: int, status: str
) -> None:
    """Where the chain demands a height in the coinbase, it is the one stored."""
    made = coinbase(stated)
    row = make_all_rows()["blocks"][0] | {"height": height, "coinbase_txid": made.GetTxid()}
    row |= {"coinbase_script": bytes(made.vin[0].scriptSig), "coinbase_locktime": made.nLockTime}
    dataset = Dataset.open(tmp_path / "d", chain, create=True)
    dataset.write(BLOCKS, [row], stem="made")

    assert result(dataset, "hashes", monkeypatch).status == status


def end_all(rows: Rows, reason: str) -> None:
    """Set the end reason of every coverage interval."""
    for row in rows["coverage"]:
        row["end_reason"] = reason


def test_a_clock_that_was_set_makes_no_moment_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are not compared after a clock step; a contradiction below `clock_step_s` is allowed."""
    rows = make_all_rows()
    rows["mempool_events"][1]["received_at"] = at_us(0) - 400_000
    assert result(write(tmp_path / "slewed", rows), "moments", monkeypatch).status == OK
    rows["mempool_events"][1]["received_at"] = at_us(0) - 600_000
    assert result(write(tmp_path / "wrong", rows), "moments", monkeypatch).status == BREACH
    rows["nodes"][0]["settings"] = '{"clock_step_s": 1}'
    assert result(write(tmp_path / "set so", rows), "moments", monkeypatch).status == OK
    rows["mempool_events"][1]["received_at"] = at_us(0) - 3_000_000
    end_all(rows, "clock_step")
    assert result(write(tmp_path / "stepped", rows), "moments", monkeypatch).status == OK


@pytest.mark.parametrize(
    ("check", "plant"),
    [("pulled", drop("mempool_events", 7)), ("reasons", change("mempool_events", 4, replaced_by=name("x")))],
)
def test_what_a_kill_took_along_is_no_breach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, plant: Plant
) -> None:
    """After a kill, rows may lack the rows that explain them: that is no breach."""
    rows = make_all_rows()
    plant(rows)
    assert result(write(tmp_path / "ended", rows), check, monkeypatch).status == BREACH
    end_all(rows, "killed")
    assert result(write(tmp_path / "killed", rows), check, monkeypatch).status == OK


def test_a_file_without_rows_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without rows passes; a folder whose heights are not a span of the contract fails."""
    dataset = write(tmp_path / "d", make_all_rows())
    (path,) = dataset.paths(BLOCKS)
    pq.write_table(dataset.read(BLOCKS).slice(0, 0), path.with_name("empty.parquet"))
    assert {each.name for each in run.check(dataset) if each.status == BREACH} == set()
    path.parent.rename(path.parent.with_name("height=0-9999"))
    monkeypatch.setattr(run, "CHECKS", ())
    assert {each.name for each in run.check(dataset) if each.status == BREACH} == {"folders"}
