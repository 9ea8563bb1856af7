"""Write a world of planted truth as a dataset of the contract: tables by the writer of the collector itself.

    python -m tests.bench.planted_files --out FOLDER [--blocks N] [--entering N] [--taken N] [--seed N]

FOLDER gets `dataset/`, `pools/` (rules that name the pools) and `truth.json`. The default is 10 million
transactions in the mempool, 8 million confirmed, 4,000 blocks.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES, Table
from tests.bench.planted_truth import truth_of
from tests.bench.planted_world import MINED, POOLS, SECOND_US, WAITS, Ints, Size, World, simulate

BEGIN_US: Final = 1_767_225_600 * SECOND_US  # 2026-01-01 UTC
FIRST_HEIGHT: Final = 940_001
SUBSIDY_SAT: Final = 312_500_000
BITS: Final = 0x1702C4E4
PRICE_USD: Final = 100_000.0
TX_ROWS: Final = 1_000_000  # written together
BLOCK_ROWS: Final = 500
LAG_US: Final = 400_000  # the other node sees a block later, on average
CHAIN: Final = "main"
REASONS: Final = np.array(["", "mined", "replaced", "expired_or_evicted"])
MIX: Final = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)

Bytes = npt.NDArray[np.uint8]


def write_world(world: World, out: Path) -> Path:
    """Write dataset, rules and truth; gives the dataset's folder."""
    dataset = Dataset.open(out / "dataset", CHAIN, create=True)
    for name, stem, columns in _tables(world):
        n_rows = max(len(column) for column in columns.values())
        dataset.write(TABLES[name], filled(TABLES[name], n_rows, columns), stem=stem, is_sorted=True)
    rules = out / "pools"
    rules.mkdir(parents=True, exist_ok=True)
    for policy in POOLS:
        if policy.slug != "unknown":
            rule = f'[[rules]]\ntag = "/{policy.slug}/"\nsource = "made up"\n'
            (rules / f"{policy.slug}.toml").write_text(f'name = "{policy.slug.title()}"\n\n{rule}')
    (out / "truth.json").write_text(json.dumps(truth_of(world), indent=2) + "\n")
    return out / "dataset"


def _tables(world: World) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give table name, file stem and columns, a part at a time; missing columns are null or zero."""
    yield from _node(world)
    n_txs = len(world.txs.entered_us)
    for part, begin in enumerate(range(0, n_txs, TX_ROWS)):
        numbers = np.arange(begin, min(begin + TX_ROWS, n_txs))
        yield "mempool_txs", f"part-{part:03}", _mempool(world, numbers)
    yield from _events(world)
    for part, begin in enumerate(range(0, world.size.n_blocks, BLOCK_ROWS)):
        heights = range(begin, min(begin + BLOCK_ROWS, world.size.n_blocks))
        yield "blocks", f"part-{part:03}", _blocks(world, heights)
        yield "transactions", f"part-{part:03}", _confirmed(world, heights)
        yield from _templates(world, heights, f"part-{part:03}")


def filled(table: Table, n_rows: int, columns: dict[str, Any]) -> pa.Table:
    """Complete columns to those of the contract: null where that is allowed, else zero."""
    arrays = []
    for column in table.columns:
        value = columns.get(column.name)
        if value is None:
            value = _constant(column.name, column.type, n_rows, is_null=column.nullable)
        elif isinstance(value, np.ndarray) and value.ndim == 2:
            value = binary(value)
        elif not isinstance(value, pa.Array):
            value = pa.array(value)
        arrays.append(value.cast(column.type))
    return pa.Table.from_arrays(arrays, schema=table.arrow)


def _constant(name: str, type_: pa.DataType, n_rows: int, *, is_null: bool) -> pa.Array:
    named = {"node": "n", "session": "s", "kind": "pushed", "first_seen_kind": "pushed", "verdict": "valid"}
    named |= {"source": "zmq", "height_source": "rpc", "chain": CHAIN, "trigger": "timer"}
    if name in named:
        return pa.repeat(pa.scalar(named[name], type_), n_rows)
    if is_null:
        return pa.nulls(n_rows, type_)
    if pa.types.is_list(type_):
        return pa.ListArray.from_arrays(np.zeros(n_rows + 1, np.int32), pa.array([], type_.value_type))
    if pa.types.is_fixed_size_binary(type_):
        return binary(np.zeros((n_rows, type_.byte_width), np.uint8))
    zero: Any = {"string": "", "binary": b"", "bool": False}.get(str(type_), 0)
    return pa.repeat(pa.scalar(zero, type_), n_rows)


def binary(values: Bytes) -> pa.Array:
    """Return uint8[n, L] as fixed-size binary values."""
    buffer = pa.py_buffer(np.ascontiguousarray(values))
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(values.shape[1]), len(values), [None, buffer])


def hashes(domain: int, indices: Ints) -> Bytes:
    """Return 32 bytes per index, spread like those of a hash (splitmix64 by S. Vigna); none occurs twice."""
    n = len(indices)
    words = np.repeat(indices.astype(np.uint64), 4).reshape(n, 4) * np.uint64(4) + np.arange(
        4, dtype=np.uint64
    )
    words = (words + (np.uint64(domain) << np.uint64(56))) * np.uint64(MIX[0])
    words = (words ^ (words >> np.uint64(30))) * np.uint64(MIX[1])
    words = (words ^ (words >> np.uint64(27))) * np.uint64(MIX[2])
    return (words ^ (words >> np.uint64(31))).view(np.uint8).reshape(n, 32)


def txids(indices: Ints) -> Bytes:
    """Return the txids of mempool transactions, by their numbers."""
    return hashes(1, indices)


def block_hashes(numbers: Ints) -> Bytes:
    """Return the hashes of active blocks by their numbers; number -1 is the parent of the first."""
    return hashes(2, numbers + 1)


def rival_hashes(numbers: Ints) -> Bytes:
    """Return the hashes of stale blocks by their numbers."""
    return hashes(3, numbers)


def _times(times_us: Ints) -> pa.Array:
    return pa.array(times_us + BEGIN_US, pa.timestamp("us", tz="UTC"))


def header_times(times_us: Ints) -> pa.Array:
    """Return times in microseconds after BEGIN_US as timestamps in whole seconds."""
    return pa.array((times_us + BEGIN_US) // SECOND_US, pa.timestamp("s", tz="UTC"))


def lists(offsets: Ints, values: pa.Array) -> pa.Array:
    """Return lists: list i has the values from offsets[i] to offsets[i + 1]."""
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)


def _node(world: World) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give the tables about the watching itself, the arrivals at two nodes, and prices."""
    arrived = world.blocks.arrived_us
    last = int(arrived[-1])
    rng = np.random.default_rng(world.size.seed + 1)
    yield "nodes", "all", {"node": ["n", "m"], "started_at": _times(np.zeros(2, np.int64))}
    topics = ["sequence", "rawtx", "rawblock", "mempool"]
    ends = _times(np.full(4, last + SECOND_US))
    yield (
        "coverage",
        "all",
        {
            "topic": topics,
            "from_at": _times(np.full(4, -SECOND_US)),
            "to_at": ends,
            "end_reason": ["shutdown"] * 4,
        },
    )
    numbers = np.arange(len(arrived))
    rivals = numbers[world.blocks.is_stale_rival]
    lag_us = rng.exponential(LAG_US, len(arrived)).astype(np.int64)
    times = np.concatenate([arrived, arrived, arrived + lag_us, arrived[rivals] + SECOND_US])
    hash_ = np.concatenate([block_hashes(numbers)] * 3 + [rival_hashes(rivals)])
    prev = np.concatenate([block_hashes(numbers - 1)] * 3 + [block_hashes(rivals - 1)])
    event = np.repeat(["seen", "connected", "seen", "seen"], [len(numbers)] * 3 + [len(rivals)])
    node = np.repeat(["n", "n", "m", "n"], [len(numbers)] * 3 + [len(rivals)])
    height = np.concatenate([numbers] * 3 + [rivals]) + FIRST_HEIGHT
    order = np.argsort(times, kind="stable")
    columns = {
        "event_at": times,
        "block_hash": hash_,
        "prev_hash": prev,
        "event": event,
        "node": node,
        "height": height,
    }
    columns = {name: column[order] for name, column in columns.items()}
    yield "block_arrivals", "all", columns | {"event_at": _times(columns["event_at"])}
    days = np.arange(-1, last // (86_400 * SECOND_US) + 1) * 86_400 * SECOND_US
    prices = {
        "source": ["made up"] * len(days),
        "currency": ["USD"] * len(days),
        "close": np.full(len(days), PRICE_USD),
    }
    yield "external_prices", "all", prices | {"day_at": header_times(days), "imported_at": _times(0 * days)}


def _mempool(world: World, part: Ints) -> dict[str, Any]:
    """Give the rows of mempool_txs for transactions that entered one after another."""
    txs = world.txs
    parent = txs.parent[part]
    has_parent = parent >= 0
    return {
        "txid": txids(part),
        "entered_at": _times(txs.entered_us[part]),
        "mempool_sequence": part,
        "vsize_vb": txs.vsize_vb[part],
        "weight_wu": txs.vsize_vb[part] * 4,
        "size_bytes": txs.vsize_vb[part],
        "fee_sat": txs.fee_sat[part],
        "fee_source": pa.repeat(pa.scalar("mempool_entry"), len(part)),
        "parents": lists(np.concatenate([[0], np.cumsum(has_parent)]), binary(txids(parent[has_parent]))),
        "signals_rbf": part % 2 == 0,
        "version": np.where(part % 16 == 3, 3, 2),  # some have a feature that pools may refuse
    }


def _events(world: World) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give the stream of the `sequence` topic; of relatives that leave together, children come first."""
    txs, arrived = world.txs, world.blocks.arrived_us
    index = np.arange(len(txs.entered_us), dtype=np.int32)
    gone = index[(txs.left_kind != WAITS) & (txs.left_kind != MINED)][::-1]
    numbers = np.arange(len(arrived), dtype=np.int32)
    time = np.concatenate([txs.entered_us, txs.left_us[gone], arrived])
    event = np.repeat(np.array([b"A", b"R", b"C"]), [len(index), len(gone), len(numbers)])
    subject = np.concatenate([index, gone, numbers])
    order = np.argsort(time, kind="stable")
    for part, begin in enumerate(range(0, len(order), TX_ROWS)):
        rows = order[begin : begin + TX_ROWS]
        is_block = event[rows] == b"C"
        names = np.where(is_block[:, None], block_hashes(subject[rows]), txids(subject[rows]))
        is_removal = event[rows] == b"R"
        reasons = REASONS[txs.left_kind[np.where(is_removal, subject[rows], 0)]]
        newest = np.maximum(np.searchsorted(txs.entered_us, time[rows], side="right") - 1, 0)
        is_replaced = is_removal & (reasons == "replaced")
        yield (
            "mempool_events",
            f"part-{part:03}",
            {
                "sequence": np.arange(begin, begin + len(rows)),
                "received_at": _times(time[rows]),
                "event": pa.array(event[rows].astype(str)),
                "hash": names,
                "mempool_sequence": pa.array(subject[rows], mask=event[rows] != b"A"),
                "removal_reason": pa.array(reasons, mask=~is_removal),
                "replaced_by": pc.if_else(pa.array(is_replaced), binary(txids(newest)), None),
            },
        )


def _blocks(world: World, numbers: range) -> dict[str, Any]:
    """Give the rows of blocks: the active one of each height, and its empty rival where there is one."""
    blocks, txs = world.blocks, world.txs
    of = np.array(numbers)
    fees = np.array([int(txs.fee_sat[blocks.taken[i]].sum()) for i in numbers]) + blocks.n_unseen[of] * 150
    weight = (
        np.array([int(txs.vsize_vb[blocks.taken[i]].sum()) * 4 for i in numbers]) + blocks.n_unseen[of] * 600
    )
    n_tx = np.array([len(blocks.taken[i]) for i in numbers]) + blocks.n_unseen[of] + 1
    rivals = of[blocks.is_stale_rival[of]]
    both = np.concatenate([of, rivals])
    is_rival = np.arange(len(both)) >= len(of)
    order = np.argsort(both, kind="stable")
    none = np.zeros(len(rivals), np.int64)
    tags = [b"" if POOLS[p].slug == "unknown" else f"/{POOLS[p].slug}/".encode() for p in blocks.pool[both]]
    fees, weight = np.concatenate([fees, none]), np.concatenate([weight, none]) + 800
    columns = {
        "block_hash": np.where(is_rival[:, None], rival_hashes(both), block_hashes(both)),
        "height": both + FIRST_HEIGHT,
        "prev_hash": block_hashes(both - 1),
        "bits": np.full(len(both), BITS),
        "n_tx": np.concatenate([n_tx, none + 1]),
        "fees_sat": fees,
        "weight_wu": weight,
        "size_bytes": weight // 4,
        "subsidy_sat": np.full(len(both), SUBSIDY_SAT),
        "coinbase_value_sat": fees + SUBSIDY_SAT,
        "coinbase_script": np.array([b"\x03abc" + tag for tag in tags], dtype=object),
        "times": blocks.arrived_us[both],
    }
    columns = {name: column[order] for name, column in columns.items()}
    columns["header_time"] = header_times(columns.pop("times"))
    columns["coinbase_script"] = pa.array(columns["coinbase_script"], pa.binary())
    return columns


def _confirmed(world: World, numbers: range) -> dict[str, Any]:
    """Give the rows of transactions: per block a coinbase, what it took, and what nobody had seen."""
    blocks, txs = world.blocks, world.txs
    parts: list[Ints] = []  # place in txs; -1 coinbase, -2 unseen
    owner, is_rival = [], []
    for i in numbers:
        rows = np.concatenate([[-1], blocks.taken[i], np.full(blocks.n_unseen[i], -2)])
        for rival in [False] + [True] * bool(blocks.is_stale_rival[i]):
            parts.append(rows[:1] if rival else rows)
            owner.append(np.full(len(parts[-1]), i))
            is_rival.append(np.full(len(parts[-1]), rival))
    place, block, rival_row = np.concatenate(parts), np.concatenate(owner), np.concatenate(is_rival)
    tx_index = np.concatenate([np.arange(len(part)) for part in parts])
    known, is_coinbase = place >= 0, place == -1
    other = hashes(4, block * 20_000 + tx_index * 2 + rival_row)
    inside = np.maximum(place, 0)
    vsize = np.where(known, txs.vsize_vb[inside], np.where(is_coinbase, 200, 150))
    return {
        "block_hash": np.where(rival_row[:, None], rival_hashes(block), block_hashes(block)),
        "height": block + FIRST_HEIGHT,
        "tx_index": tx_index,
        "txid": np.where(known[:, None], txids(inside), other),
        "vsize_vb": vsize,
        "weight_wu": vsize * 4,
        "size_bytes": vsize,
        "fee_sat": pa.array(np.where(known, txs.fee_sat[inside], 150), mask=is_coinbase),
        "is_coinbase": is_coinbase,
        "version": np.where(known & (place % 16 == 3), 3, 2),
    }


def _templates(world: World, numbers: range, stem: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Give a template per block, in the order in which the node would mine."""
    blocks, txs = world.blocks, world.txs
    of = np.array(numbers)
    counts = np.array([len(blocks.template[i]) for i in numbers])
    place = np.concatenate([blocks.template[i] for i in numbers])
    taken_us = np.array([blocks.template_us[i] for i in numbers])
    ends = np.cumsum(counts)
    tx_index = np.arange(len(place)) - np.repeat(ends - counts, counts) + 1
    yield (
        "templates",
        stem,
        {
            "taken_at": _times(taken_us),
            "height": of + FIRST_HEIGHT,
            "prev_hash": block_hashes(of - 1),
            "node_time": header_times(taken_us),
            "n_tx": counts,
        },
    )
    yield (
        "template_txs",
        stem,
        {
            "taken_at": _times(np.repeat(taken_us, counts)),
            "tx_index": tx_index,
            "txid": txids(place),
            "fee_sat": txs.fee_sat[place],
            "weight_wu": txs.vsize_vb[place] * 4,
        },
    )


def main() -> None:
    """Read the command line, make a world, write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--blocks", type=int, default=4000)
    parser.add_argument(
        "--entering", type=int, default=2500, help="transactions that enter per block interval"
    )
    parser.add_argument("--taken", type=int, default=2000, help="transactions that a block takes, on average")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    size = Size(options.blocks, options.entering, options.taken, options.seed)
    print(write_world(simulate(size), options.out))


if __name__ == "__main__":
    main()
