"""Compare a dataset with its witnesses: the node's debug.log, a bare recorder, and the node's RPC.

What a judge finds wrong is a sentence in `Verdict.faults`. Parquet is read with pyarrow alone, so that the
collector's own reader cannot hide what its writer did.
"""

import os
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from collector.dataset.schema import TABLES, hash_bytes
from collector.errors import RpcError
from collector.node.rpc import RpcClient
from tests.functional.chaos import nodelog, recorder
from tests.functional.chaos.intervals import COUNTER_RANGE, Interval, holes, in_order, joined

Row = dict[str, Any]
SLACK_US = 1_500_000  # so long may a message be under way from the node's log to the collector's stamp
MOST_MESSAGES = 10_000_000  # in one interval; more is a fault that `holes` names
BLOCKS_AT_ONCE = 20  # a full one is some ten MB of JSON
SHOWN = 3  # examples per kind of fault


@dataclass
class Verdict:
    """What was found: sentences about what is wrong, and figures about what was there."""

    faults: list[str] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)

    def wrong(self, what: str, examples: Iterable[Any]) -> None:
        """Note a kind of fault, if there is an example of it."""
        found = list(examples)
        if found:
            self.faults.append(f"{what}: {len(found)}, e.g. {', '.join(map(str, found[:SHOWN]))}")


@dataclass(kw_only=True)
class Evidence:
    """What there is to judge by; `mempool` are the txids in the node's at the end, if it was still."""

    dataset: Path
    debug_log: Path
    frames: list[recorder.Frame]  # of `sequence`
    rpc: RpcClient
    mempool: set[bytes] | None = None
    fees_sat: Mapping[bytes, int] = field(default_factory=dict)
    may_end: frozenset[str] = frozenset()  # reasons that may end an interval, besides sealed and shutdown
    must_end: frozenset[str] = frozenset()  # reasons of which each must be there
    has_clock: bool = True  # whether the collector's clock was the node's
    wants_check: bool = True  # whether `pool-collector check` is to have its say
    node_forgets: bool = False  # whether the node was killed: it loses the blocks it had not yet written
    has_all_fees: bool = False  # whether the node could tell the fee of every transaction in the end
    journal_damaged: bool = False  # whether rows that were committed, and not sealed, were destroyed


def read_tables(dataset: Path) -> dict[str, list[Row]]:
    """Read every table with pyarrow alone."""
    rows: dict[str, list[Row]] = {}
    for name in TABLES:
        files = sorted((dataset / "chain=regtest" / name).glob("[dh]*=*/*.parquet"))
        rows[name] = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    return rows


def judge(evidence: Evidence) -> Verdict:
    """Judge a dataset whose collector has been stopped."""
    verdict = Verdict()
    rows = read_tables(evidence.dataset)
    _grains(rows, verdict)
    runs = nodelog.read(evidence.debug_log)
    sessions = {row["session"] for row in rows["nodes"]} | {row["session"] for row in rows["mempool_events"]}
    for session in sorted(sessions):
        _session(session, rows, runs, evidence, verdict)
    _ends(rows, evidence, verdict)
    _entries(rows, evidence, verdict)
    _bodies(rows, evidence, verdict)
    _blocks(rows, evidence, verdict)
    if evidence.mempool is not None:
        _mempool(rows, evidence, verdict)
    left = sorted(evidence.dataset.glob("journal/**/*.journal"))
    verdict.wrong("journal left over after a last stop", [path.name for path in left])
    if evidence.wants_check:
        check_command(evidence.dataset, verdict)
    verdict.figures |= {
        "sessions": len(sessions),
        "published": sum(len(run.published) for run in runs),
        "recorded": len(evidence.frames),
        "events": sum(row["kind"] == "pushed" for row in rows["mempool_events"]),
        "pulled": sum(row["kind"] == "pulled" for row in rows["mempool_events"]),
        "blocks": len(rows["blocks"]),
        "rejects": len(rows["rejects"]),
        "holes": dict(
            Counter(row["end_reason"] for row in rows["coverage"] if row["end_reason"] != "sealed")
        ),
    }
    return verdict


def _grains(rows: dict[str, list[Row]], verdict: Verdict) -> None:
    for name, table in TABLES.items():
        keys = Counter(tuple(row[column] for column in table.grain) for row in rows[name])
        verdict.wrong(f"rows twice in {name}", [key for key, count in keys.items() if count > 1])


def _session(
    session: str,
    rows: dict[str, list[Row]],
    runs: list[nodelog.NodeRun],
    evidence: Evidence,
    verdict: Verdict,
) -> None:
    """Judge the events and the coverage of one session against what the node published in that run."""
    pushed = {
        row["sequence"]: row
        for row in rows["mempool_events"]
        if row["session"] == session and row["kind"] == "pushed"
    }
    rejected = {
        row["sequence"] for row in rows["rejects"] if row["session"] == session and row["topic"] == "sequence"
    }
    intervals = [Interval.of(row) for row in rows["coverage"] if row["session"] == session]
    run = _run_of(pushed, rows, session, runs, evidence)
    if run is None:
        verdict.wrong(f"session {session}: events that no run of the node published", list(pushed)[:1])
        return
    published = run.published
    there = set(pushed) | rejected
    _numbers(session, pushed, published, evidence, verdict)
    for topic in ("sequence", "rawtx", "rawblock"):
        by_time = evidence.has_clock
        own = in_order([each for each in intervals if each.topic == topic], by_time=by_time)
        if not own:
            verdict.wrong(f"session {session}: no coverage of {topic}", [len(pushed)])
        verdict.wrong(f"session {session}: coverage of {topic}", holes(own, by_time=by_time))
        if topic == "sequence":
            _claims(session, own, there, verdict)
            if evidence.has_clock:
                _silence(session, own, there, published, verdict)
    if evidence.has_clock:
        own = in_order([each for each in intervals if each.topic == "mempool"], by_time=True)
        _silence(session, own, there, published, verdict)


def _run_of(
    pushed: dict[int, Row],
    rows: dict[str, list[Row]],
    session: str,
    runs: list[nodelog.NodeRun],
    evidence: Evidence,
) -> nodelog.NodeRun | None:
    """Find the run of the node that a session watched: by what it saw; when it saw nothing, by the time."""
    if not pushed:
        starts = [row["from_at"] for row in rows["coverage"] if row["session"] == session]
        starts += [row["started_at"] for row in rows["nodes"] if row["session"] == session]
        if not starts or not evidence.has_clock:
            return runs[-1]
        at = bisect_right([run.began_us for run in runs], int(min(starts).timestamp() * 1_000_000))
        return runs[max(at - 1, 0)]

    def n_wrong(run: nodelog.NodeRun) -> int:
        return sum(
            counter >= len(run.published)
            or (run.published[counter].letter, run.published[counter].hash) != (row["event"], row["hash"])
            for counter, row in pushed.items()
        )

    best = min(runs, key=n_wrong)
    return best if n_wrong(best) <= len(pushed) // 2 else None


def _numbers(
    session: str,
    pushed: dict[int, Row],
    published: list[nodelog.Published],
    evidence: Evidence,
    verdict: Verdict,
) -> None:
    """Compare rows with the node's log (what happened) and with the recorder (the bytes)."""
    wrong = [
        counter
        for counter, row in pushed.items()
        if counter >= len(published)
        or (published[counter].letter, published[counter].hash) != (row["event"], row["hash"])
    ]
    verdict.wrong(f"session {session}: rows that differ from the node's log, by counter", wrong)
    bodies = {(frame.counter, frame.body[:33]): frame.body for frame in evidence.frames}
    wrong = []
    for counter, row in pushed.items():
        body = bodies.get((counter, row["hash"][::-1] + row["event"].encode()))
        number = int.from_bytes(body[33:], "little") if body is not None and len(body) > 33 else None
        if body is not None and number != row["mempool_sequence"]:
            wrong.append(counter)
    verdict.wrong(f"session {session}: mempool sequence differs from the recorder's", wrong)


def _claims(session: str, intervals: list[Interval], there: set[int], verdict: Verdict) -> None:
    """Every message an interval claims is there, and every message that is there is claimed."""
    claims = [each for each in intervals if each.n_claimed <= MOST_MESSAGES]
    claimed = {
        ((each.first or 0) + number) % COUNTER_RANGE for each in claims for number in range(each.n_claimed)
    }
    verdict.wrong(
        f"session {session}: claimed by coverage, not in the dataset, by counter", sorted(claimed - there)
    )
    verdict.wrong(f"session {session}: in the dataset, outside coverage, by counter", sorted(there - claimed))


def _silence(
    session: str,
    intervals: list[Interval],
    there: set[int],
    published: list[nodelog.Published],
    verdict: Verdict,
) -> None:
    """Nothing was published inside an interval and is missing: such a hole would have no name."""
    missing = [
        f"{counter} {each.letter} {(span.to_us - each.at_us) / 1e6:.1f} s before the end ({span.reason})"
        for span in joined(intervals)
        for counter, each in enumerate(published)
        if span.from_us <= each.at_us <= span.to_us - SLACK_US and counter not in there
    ]
    verdict.wrong(f"session {session}: published inside coverage, not in the dataset, by counter", missing)


def _ends(rows: dict[str, list[Row]], evidence: Evidence, verdict: Verdict) -> None:
    ends = {(row["topic"], row["end_reason"]) for row in rows["coverage"]}
    reasons = {reason for _, reason in ends}
    expected = evidence.may_end | {"sealed", "shutdown"}
    # Our copy of the mempool may be corrected at any time: the mempool's own numbers demand it.
    unexpected = {(topic, reason) for topic, reason in ends if reason not in expected} - {
        ("mempool", "resync")
    }
    verdict.wrong("unexpected end of an interval", sorted(unexpected))
    verdict.wrong("a hole was made and coverage never says", sorted(evidence.must_end - reasons))


def _entries(rows: dict[str, list[Row]], evidence: Evidence, verdict: Verdict) -> None:
    """Every A has its entry at its moment; fees are those that were paid."""
    entries = {(row["session"], row["txid"], row["entered_at"]) for row in rows["mempool_txs"]}
    seen = {(row["session"], row["txid"]) for row in rows["mempool_txs"]}
    pushed = [row for row in rows["mempool_events"] if row["event"] == "A" and row["kind"] == "pushed"]
    verdict.wrong(
        "transactions that entered and have no row in mempool_txs",
        [row["hash"][::-1].hex() for row in pushed if (row["session"], row["hash"]) not in seen],
    )
    told = {(row["session"], row["hash"], row["received_at"]) for row in pushed}
    verdict.wrong(
        "rows in mempool_txs that are said to be pushed, without their event",
        [
            row["txid"][::-1].hex()
            for row in rows["mempool_txs"]
            if row["first_seen_kind"] == "pushed"
            and (row["session"], row["txid"], row["entered_at"]) not in told
        ],
    )
    late = [row for row in pushed if (row["session"], row["hash"], row["received_at"]) not in entries]
    verdict.figures["entries at another moment than their event"] = len(late)
    wrong = [
        row["txid"][::-1].hex()
        for row in rows["mempool_txs"]
        if row["fee_sat"] is not None and row["fee_sat"] != evidence.fees_sat.get(row["txid"], row["fee_sat"])
    ]
    verdict.wrong("fees in mempool_txs that were never paid", wrong)
    if evidence.has_all_fees:
        verdict.wrong(
            "rows in mempool_txs without the fee that the node could tell",
            [row["txid"][::-1].hex() for row in rows["mempool_txs"] if row["fee_sat"] is None],
        )
    verdict.figures["entries"] = len(entries)
    verdict.figures["entries without fee"] = sum(row["fee_sat"] is None for row in rows["mempool_txs"])


def _bodies(rows: dict[str, list[Row]], evidence: Evidence, verdict: Verdict) -> None:
    """Whatever left unconfirmed, and had bytes that reached us, has its bytes in mempool_bodies.

    Of a transaction that left, a damaged journal may hold the message and no longer the bytes.
    """
    kept = {(row["node"], row["txid"]) for row in rows["mempool_bodies"]}
    whole = {
        (row["node"], row["session"], row["txid"])
        for row in rows["mempool_txs"]
        if row["size_bytes"] is not None and row["first_seen_kind"] != "in_block"
    }
    lost = {
        (row["node"], row["hash"])
        for row in rows["mempool_events"]
        if row["event"] == "R"
        and row["removal_reason"] != "mined"
        and (row["node"], row["session"], row["hash"]) in whole
    }
    missing = [txid[::-1].hex() for _, txid in lost - kept]
    if evidence.journal_damaged:
        verdict.figures["lost transactions whose bytes were destroyed"] = len(missing)
    else:
        verdict.wrong("lost transactions without their bytes", missing)
    verdict.figures["lost transactions"] = len(lost)
    verdict.figures["bodies"] = len(rows["mempool_bodies"])


def _blocks(rows: dict[str, list[Row]], evidence: Evidence, verdict: Verdict) -> None:
    """Every block of the active chain since the start, and every one seen come, is there as RPC has it."""
    rpc = evidence.rpc
    first = min((row["tip_height"] for row in rows["nodes"]), default=rpc.call("getblockcount")) + 1
    heights = range(first, rpc.call("getblockcount") + 1)
    wanted = {hash_bytes(block_hash) for block_hash in rpc.batch([("getblockhash", h) for h in heights])}
    wanted |= {row["hash"] for row in rows["mempool_events"] if row["event"] in "CD"}
    wanted |= {row["block_hash"] for row in rows["block_arrivals"] if row["event"] == "seen"}
    blocks = {row["block_hash"]: row for row in rows["blocks"]}
    transactions: dict[bytes, list[Row]] = {}
    for row in rows["transactions"]:
        transactions.setdefault(row["block_hash"], []).append(row)
    verdict.wrong("blocks missing", [each[::-1].hex() for each in wanted - set(blocks)])
    verdict.wrong("transactions of no block", [each[::-1].hex() for each in set(transactions) - set(blocks)])
    forgotten: list[str] = []
    differ: list[str] = []
    answers = rpc.batch(
        [("getblock", block_hash[::-1].hex(), 3) for block_hash in blocks], size=BLOCKS_AT_ONCE
    )
    for (block_hash, row), answer in zip(blocks.items(), answers, strict=True):
        found = sorted(transactions.get(block_hash, []), key=lambda each: each["tx_index"])
        if isinstance(answer, RpcError):
            forgotten.append(block_hash[::-1].hex())
        else:
            differ += [answer["hash"]] * _differs(row, found, answer)
    verdict.wrong("blocks that differ from getblock", differ)
    if forgotten and evidence.node_forgets:
        verdict.figures["blocks that only the dataset has"] = len(forgotten)
    else:
        verdict.wrong("blocks that the node does not know", forgotten)


def _differs(row: Row, transactions: list[Row], answer: Row) -> bool:
    """Whether a block's row or its transactions are not what the node says."""
    told = [(hash_bytes(each["txid"]), _fee_sat(each)) for each in answer["tx"]]
    fees_sat = sum(fee for _, fee in told if fee is not None)
    return (
        [(each["txid"], each["fee_sat"]) for each in transactions] != told
        or (row["fees_sat"], row["height"], row["n_tx"]) != (fees_sat, answer["height"], answer["nTx"])
        or row["verdict"] != "valid"
    )


def _fee_sat(transaction: Row) -> int | None:
    fee = transaction.get("fee")
    return None if fee is None else int(Decimal(fee) * 100_000_000)


def _mempool(rows: dict[str, list[Row]], evidence: Evidence, verdict: Verdict) -> None:
    """Replay the last session: what it says is in the mempool is what the node says."""
    last = max(rows["nodes"], key=lambda row: row["session"])["session"]
    entries = (row for row in rows["mempool_txs"] if row["session"] == last)
    inside = {row["txid"] for row in entries if row["first_seen_kind"] == "at_start"}
    mined: dict[bytes, set[bytes]] = {}
    for row in rows["transactions"]:
        mined.setdefault(row["block_hash"], set()).add(row["txid"])
    events = [row for row in rows["mempool_events"] if row["session"] == last]
    in_node = evidence.mempool or set()
    if evidence.has_clock:
        events.sort(key=lambda row: (row["received_at"], abs(row["sequence"])))
    else:
        events.sort(key=lambda row: row["sequence"])
    for row in events:
        if row["event"] == "A":
            inside.add(row["hash"])
        elif row["event"] == "R":
            inside.discard(row["hash"])
        elif row["event"] == "C":
            inside -= mined.get(row["hash"], set())
    verdict.wrong(
        "in the mempool by the dataset, not by the node", [each[::-1].hex() for each in inside - in_node]
    )
    verdict.wrong(
        "in the mempool by the node, not by the dataset", [each[::-1].hex() for each in in_node - inside]
    )
    verdict.figures["mempool"] = len(in_node)


def check_command(dataset: Path, verdict: Verdict) -> None:
    """Let the collector's own check have its say."""
    status, said = run_check(dataset)
    verdict.figures["check"] = status
    if status:
        lines = said.splitlines()
        at = next((number for number, line in enumerate(lines) if ": breach, " in line), 0)
        verdict.faults.append(f"`check` ends with {status}: {' '.join(lines[at : at + 2])}")


def run_check(dataset: Path) -> tuple[int, str]:
    """Run `pool-collector check`; returns its status and its words."""
    wide = os.environ | {"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}
    command = [sys.executable, "-m", "collector", "check", dataset]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=wide)
    return done.returncode, done.stdout + done.stderr
