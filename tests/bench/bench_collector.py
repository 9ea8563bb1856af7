"""Measure the live collector: rates, stamps, memory, bytes per row; what is compared runs in the same run.

    python tests/bench/bench_collector.py [--transactions N] [--rounds N] [--only PART] [--out FILE]

A process stands in for the node (`bench_traffic`): it publishes, and answers RPC. It has one core; what is
measured has another, with all its threads and processes.

- `bare`: a loop of `recv_multipart` over the same frames.
- `entries`, `blocks`, `both`: receive, decode, verify, journal and seal, by the collector's own classes;
  nothing is asked of the node, and the mempool is not followed. `entries` gets each transaction as `rawtx`,
  `blocks` gets them as `rawblock`, and makes the rows of blocks and transactions, `both` gets each both ways.
- `whole`, once: `pool-collector run` as it is, fees and blocks asked for by RPC; all that a node sends of a
  transaction: its event, its body, the body again when it is mined, and the block. Beside it a bare loop that
  asks the node the same questions one after the other, and does nothing with the answers.
- `memory`: resident memory with the mempool full: filled by a burst, by one in a collector that never ran
  here before (nothing is compiled), and full at the start.
- `readers`: the whole collector with 20 readers of its live stream, beside the same without a reader
  (`bench_readers`).
- `sustained`: 10,000 rows a second, for as long as `--sustain-s` says; `mainnet_rate`: 30;
  `overloaded`: six times as many as sustained.

The frames are of transactions as large as on mainnet. Rates are by the clock and by processor time: where
other programs use our core as well, only the second says what a core does.
"""

import argparse
import json
import multiprocessing
import os
import platform
import queue
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import zmq
from bench_chain import TX_PER_BLOCK
from bench_readers import RATES, delays, listener, readers, with_readers
from bench_running import OVERLOAD, Running, feed, memory, sustained
from bench_sizes import bytes_per_row
from bench_stamps import stamps
from bench_traffic import PATIENCE_MS, Node, Traffic, make_traffic, write_traffic

from collector.codec.block import parse_block
from collector.codec.coinbase import bip34_height
from collector.codec.rows import block_rows, warm_up
from collector.codec.transaction import RecentTransactions
from collector.codec.verify import backend_name, verify_block
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS, MEMPOOL_TXS, TABLES, TRANSACTIONS, ZMQ_TOPICS
from collector.errors import DecodeError
from collector.journal.journal import Journal
from collector.mempool.entries import PendingEntry, mempool_tx_row
from collector.node.rpc import RpcClient
from collector.receive.records import Message
from collector.receive.source import MessageSource
from collector.regtest.ports import free_ports
from collector.service.memory import collect_garbage_seldom
from collector.service.session import GATHER_ITEMS
from collector.unneeded import hide_unneeded
from gpuhash.measure import machine

TRAFFIC = Path(__file__).resolve().parents[2] / ".cache" / "bench-collector"
OUR_CORE, NODE_CORE = 0, 1
OVERLOADED_S = 60.0
MAINNET, MAINNET_S = 0.003, 60.0  # 10 transactions a second come and go: 30 rows
SMOKE_S = 5.0
SMOKE_PACED_S = 1.0
REST = ("readers", "stamps", "memory", "sustained", "mainnet_rate", "overloaded")
COMPARED = ("tx_per_s", "tx_per_cpu_s", "ratio_to_bare", "ratio_to_bare_by_cpu")
FRAMES = {"entries": ("rawtx",), "blocks": ("rawblock",), "both": ("rawtx", "rawblock")}


def main() -> None:
    """Measure each part in processes of its own, and write JSON."""
    options = parse()
    if options.smoke:
        smoke(options)
        return
    root = prepare(options)
    facts: dict[str, Any] = {
        "machine": asdict(machine.describe()),
        "system": platform.platform(),
        "load_before": os.getloadavg(),
        "n_tx": options.transactions,
    }
    if not options.only:
        rounds = [throughput(root, "entries", "blocks", "both") for _ in range(options.rounds)]
        whole = throughput(root, "whole")
        facts |= {part: middle([each[part] for each in rounds]) for part in rounds[0]}
        facts |= {**whole, "rounds": rounds}
        tell(facts)
    options.out.write_text(json.dumps(facts, indent=2) + "\n")
    rest: dict[str, Callable[[], Any]] = {
        "readers": lambda: with_readers(
            partial(apart, whole_collector),
            partial(apart, delays),
            partial(apart, listener),
            root / "whole",
            options.rounds,
        ),
        "stamps": lambda: apart(stamps),
        "memory": lambda: memories(root),
        "sustained": lambda: apart(sustained, root, options.sustain_s),
        "mainnet_rate": lambda: apart(sustained, root, MAINNET_S, MAINNET),
        "overloaded": lambda: apart(sustained, root, OVERLOADED_S, OVERLOAD),
    }
    for name, measure in rest.items():
        if options.only not in (None, name):
            continue
        facts[name] = measure()
        say(f"{name}: {json.dumps(facts[name])}")
        options.out.write_text(json.dumps(facts, indent=2) + "\n")  # what is measured outlives an end
    say(f"written to {options.out}")


def smoke(options: argparse.Namespace) -> None:
    """Run each part once on little traffic, in processes forked from one that has loaded everything."""
    options.transactions, options.waiting = TX_PER_BLOCK, 200
    apart.keywords["method"] = "forkserver"
    root = prepare(options)
    parts = throughput(root, "entries", "blocks", "both", "whole")
    facts = {**{part: middle([parts[part]]) for part in FRAMES}, "whole": parts["whole"]}
    tell(facts)
    facts["memory"] = apart(partial(memory, settled_s=0.0), root)
    facts["sustained"] = apart(sustained, root, SMOKE_S)
    paced = partial(apart, partial(delays, duration_s=SMOKE_PACED_S))
    alone = partial(apart, partial(listener, duration_s=SMOKE_PACED_S, settled_s=SMOKE_PACED_S))
    whole = partial(apart, whole_collector)
    facts["readers"] = with_readers(whole, paced, alone, root / "whole", 1, RATES[:1])
    options.out.write_text(json.dumps(facts, indent=2) + "\n")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--transactions", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, default=200_000, help="in the mempool, for the memory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sustain-s", type=float, default=30.0, help="how long 10,000 rows a second come")
    parser.add_argument("--only", choices=REST, help="measure this part alone")
    parser.add_argument("--out", type=Path, default=Path("bench-collector.json"))
    parser.add_argument("--traffic", type=Path, default=TRAFFIC, help="folder of what the node sends")
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    return parser.parse_args()


def prepare(options: argparse.Namespace) -> Path:
    """Make what the node process sends, unless it is there; returns its folder."""
    root = options.traffic / f"{options.transactions}-{options.waiting}"
    done = root / "done-2"
    if done.exists():
        return root
    say("making the traffic")
    whole = make_traffic(options.transactions)
    write_traffic(whole, root / "whole")
    for part, topics in FRAMES.items():
        once = dict.fromkeys(frame for frame in whole.frames if frame[0] in topics)
        write_traffic(Traffic(list(once), {}, whole.n_tx), root / part)
    write_traffic(make_traffic(0, n_unmined=options.waiting), root / "memory")
    done.touch()
    return root


def memories(root: Path) -> dict[str, Any]:
    """Measure resident memory: after a burst, also at a first start, and at a start that finds it full."""
    facts = {"burst": apart(memory, root), "at_start": apart(partial(memory, is_full=True), root)}
    with tempfile.TemporaryDirectory() as nothing_compiled:
        os.environ["NUMBA_CACHE_DIR"] = nothing_compiled
        facts["burst_at_first_start"] = apart(memory, root)
        del os.environ["NUMBA_CACHE_DIR"]
    for name, found in facts.items():
        say(f"memory, {name}: {json.dumps(found)}")
    return facts


def throughput(root: Path, *names: str) -> dict[str, Any]:
    """Measure one round: each chain of stages beside a bare loop over the same frames."""
    facts = {}
    for name in names:
        bare = apart(bare_loop, root / name)
        found = apart(chain if name in FRAMES else whole_collector, root / name)
        found |= {f"bare_{key}": rate for key, rate in bare.items()}
        found["ratio_to_bare"] = found["messages_per_s"] / bare["messages_per_s"]
        found["ratio_to_bare_by_cpu"] = found["messages_per_cpu_s"] / bare["messages_per_cpu_s"]
        say(f"{name}: {json.dumps(found)}")
        facts[name] = found
    if "whole" in facts:
        asked = apart(bare_questions, root / "whole")
        for key, rate in asked.items():
            facts["whole"] |= {f"bare_questions_{key}": rate}
            facts["whole"][f"ratio_to_bare_questions_{key}"] = facts["whole"][key] / rate
    return facts


def in_a_process(
    measure: Callable[..., dict[str, Any]], *arguments: Any, method: str = "spawn"
) -> dict[str, Any]:
    """Run a part in a new process, so that memory and garbage of other parts do not count."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
        return pool.submit(measure, *arguments).result()


apart = partial(in_a_process, method="spawn")


def bare_loop(folder: Path) -> dict[str, Any]:
    """Receive messages and drop them."""
    node = Node(folder, NODE_CORE)
    os.sched_setaffinity(0, {OUR_CORE})
    socket = zmq.Context().socket(zmq.SUB)
    socket.set(zmq.RCVHWM, 0)
    socket.set(zmq.RCVTIMEO, PATIENCE_MS)
    socket.subscribe(b"")
    socket.connect(node.endpoint)
    time.sleep(0.3)  # so that connecting does not count
    begun_s, used_s = time.perf_counter(), used_here_s()
    feeding = threading.Thread(target=node.send, args=(node.n_frames,))
    feeding.start()
    for _ in range(node.n_frames):
        socket.recv_multipart()
    wall_s = time.perf_counter() - begun_s
    used_s = used_here_s() - used_s
    feeding.join()
    node.close()
    return {"messages_per_s": node.n_frames / wall_s, "messages_per_cpu_s": node.n_frames / used_s}


def bare_questions(folder: Path) -> dict[str, Any]:
    """Send the requests that the collector sends, and drop the answers."""
    (folder / "cookie").write_text("bench:bench")
    node = Node(folder, NODE_CORE)
    os.sched_setaffinity(0, {OUR_CORE})
    asked = [name.split() for name in json.loads((folder / "answers.json").read_text())]
    calls = [(method, *(int(each) if each in "03" else each for each in given)) for method, *given in asked]
    entries = [call for call in calls if call[0] == "getmempoolentry"]
    client = RpcClient(node.rpc_url, cookie_file=folder / "cookie")
    begun_s, used_s = time.perf_counter(), used_here_s()
    client.batch(entries)
    for call in calls:
        if call[0] == "getblock":
            client.call(*call)
    wall_s, used_s = time.perf_counter() - begun_s, used_here_s() - used_s
    node.close()
    return {"tx_per_s": len(entries) / wall_s, "tx_per_cpu_s": len(entries) / used_s}


def chain(folder: Path) -> dict[str, Any]:
    """Receive, decode, verify, journal, seal; each stage done by the class that does it in the collector."""
    node = Node(folder, NODE_CORE)
    os.sched_setaffinity(0, {OUR_CORE})
    warm_up()
    collect_garbage_seldom()
    hide_unneeded()
    with tempfile.TemporaryDirectory() as at:
        dataset = Dataset.open(Path(at) / "dataset", "regtest", create=True)
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        source = MessageSource("bench", "s", dict.fromkeys(ZMQ_TOPICS, node.endpoint), inbox=inbox)
        with Journal(Path(at) / "journal") as journal:
            journal.recover(dataset)
            source.connect()
            ring = journal.make_ring("bench", "s", ZMQ_TOPICS)
            source.start_forwarding(ring)
            begun_s, used_s = time.perf_counter(), used_here_s()
            feeding = threading.Thread(target=feed, args=(node, lambda: ring.n_released))
            feeding.start()
            n_rows = take_all(node.n_frames, inbox, journal)
            journal.seal(dataset)
            wall_s = time.perf_counter() - begun_s
            used_s = used_here_s() - used_s
            feeding.join()
            source.stop()
        stored = [dataset.read(table).num_rows for table in (MEMPOOL_TXS, TRANSACTIONS)]
        assert sum(stored) == n_rows, "every transaction has its row"
        n_tx = max(stored)
    node.close()
    return {
        "tx_per_s": n_tx / wall_s,
        "tx_per_cpu_s": n_tx / used_s,
        "messages_per_s": node.n_frames / wall_s,
        "messages_per_cpu_s": node.n_frames / used_s,
        "n_tx": n_tx,
    }


def used_here_s() -> float:
    """Return the processor time of the processes on our core: this one and the receiver."""
    tasks = [*Path("/proc/self/task").iterdir()]
    for task in list(tasks):
        for child in of_task(task, "children"):
            if os.sched_getaffinity(int(child)) == {OUR_CORE}:
                tasks += Path(f"/proc/{child}/task").iterdir()
    return sum(int(run_ns) for task in tasks for run_ns in of_task(task, "schedstat")[:1]) / 1e9


def of_task(task: Path, name: str) -> list[str]:
    """Return what the kernel reports about a thread, as words; none when the thread has ended."""
    try:
        return (task / name).read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def take_all(n_messages: int, inbox: "queue.SimpleQueue[Any]", journal: Journal) -> int:
    """Take messages in turns as a session does: journal, decode, rows, mark; returns how many rows."""
    recent = RecentTransactions()
    n_taken = n_rows = 0
    while n_taken < n_messages:
        messages: list[Message] = [inbox.get()]
        if inbox.qsize() < GATHER_ITEMS:
            time.sleep(0.01)
        messages += [inbox.get_nowait() for _ in range(inbox.qsize())]
        journal.append_messages(messages)
        journal.flush()
        n_rows += sum(
            store_block(message.body, journal) for message in messages if message.topic == "rawblock"
        )
        rows = entry_rows([message for message in messages if message.topic == "rawtx"], recent)
        journal.append("mempool_txs", rows)
        journal.mark_consumed(len(messages))
        journal.flush()
        n_taken += len(messages)
        n_rows += len(rows)
    return n_rows


def entry_rows(messages: list[Message], recent: RecentTransactions) -> list[dict[str, Any]]:
    """Decode bodies and make the row of each transaction that is new."""
    received_us = [message.received_ns // 1000 for message in messages]
    decoded = recent.decode_new([message.body for message in messages], received_us[-1] if messages else 0)
    rows = []
    for body, at_us in zip(decoded, received_us, strict=True):
        assert not isinstance(body, DecodeError), body
        if body is not None:
            recent.pop(body.txid)
            rows.append(
                mempool_tx_row("bench", "s", PendingEntry(body.txid, "pushed", at_us, None, body, None))
            )
    return rows


def store_block(raw: bytes, journal: Journal) -> int:
    """Decode and verify a block and make its rows; returns its transactions."""
    body = parse_block(raw)
    verdict = verify_block(body.block, "regtest")
    assert verdict == "valid"
    row, rows = block_rows(
        body,
        chain="regtest",
        height=bip34_height(body.block) or 0,
        height_source="bip34",
        source="zmq",
        verdict=verdict,
        verified_by=backend_name(),
        fees=None,
    )
    journal.append("blocks", row)
    journal.append("transactions", rows)
    return len(rows)


def whole_collector(folder: Path, n_readers: int | None = None) -> dict[str, Any]:
    """Run the collector on everything a node sends; `n_readers` gives it a listener, and so many readers."""
    node = Node(folder, NODE_CORE)
    os.sched_setaffinity(0, {OUR_CORE})
    address = None if n_readers is None else f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory() as at, readers(address, n_readers, NODE_CORE):
        running = Running(node, Path(at), metrics=address)
        begun_s, used_s = time.perf_counter(), used_here_s()
        feed(node, running.n_released)
        while running.n_released() < node.n_frames:
            time.sleep(0.005)
        used_s = used_here_s() - used_s  # before the receiver has ended
        dataset = running.finish()
        wall_s = time.perf_counter() - begun_s
        n_tx = dataset.read(MEMPOOL_TXS).num_rows
        facts = {
            "tx_per_s": n_tx / wall_s,
            "tx_per_cpu_s": n_tx / used_s,
            "messages_per_s": node.n_frames / wall_s,
            "messages_per_cpu_s": node.n_frames / used_s,
            "n_tx": n_tx,
            "n_rows": {name: dataset.read(table).num_rows for name, table in TABLES.items()},
            "bytes_per_row": {
                table.name: bytes_per_row(dataset, table) for table in (MEMPOOL_TXS, MEMPOOL_EVENTS)
            },
        }
    node.close()
    return facts


def middle(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts of the round in the middle, and the rates of all with their medians."""
    middles = {key: statistics.median(each[key] for each in rounds) for key in COMPARED}
    facts = sorted(rounds, key=lambda each: each["tx_per_s"])[len(rounds) // 2]
    return facts | middles | {f"{key}_of_rounds": [each[key] for each in rounds] for key in COMPARED}


def tell(facts: dict[str, Any]) -> None:
    """Print the main figures."""
    for name in (*FRAMES, "whole"):
        found = facts[name]
        say(
            f"{name:7}: {found['tx_per_s']:8,.0f} tx/s, {found['tx_per_cpu_s']:8,.0f} by processor time; "
            f"{found['messages_per_s']:8,.0f} messages/s, bare loop {found['bare_messages_per_s']:8,.0f}; "
            f"ratio {found['ratio_to_bare']:.3f}, by processor time {found['ratio_to_bare_by_cpu']:.3f}"
        )
    for name, sizes in facts["whole"]["bytes_per_row"].items():
        say(f"{name}: {sizes['parquet']:.1f} bytes a row, as gzip CSV {sizes['csv_gz']:.1f}")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
