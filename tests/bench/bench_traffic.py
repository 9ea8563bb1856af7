"""Traffic of a busy node to measure with, and a process that stands in for that node.

The frames are those that a node would publish, and its RPC answers what a node would say of them.
Transactions are as large as on mainnet (`bench_chain.Maker`); each enters the mempool and is mined some
thousand transactions later. Nothing is random but for the seed, so every run sees the same bytes.
"""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import zmq
from bench_chain import COIN_SCRIPT, TX_PER_BLOCK, Maker, Sent, build_bench_block

from collector.dataset.schema import ZMQ_TOPICS
from collector.regtest.mining import MinedBlock, MiningTemplate
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput

COIN_SAT = 5_000_000
COINS = 60_000  # more than the maker wants to keep
REGTEST_BITS = bytes.fromhex("ffff7f20")
REGTEST_TARGET = 0x7FFFFF << (8 * 29)
FIRST_HEIGHT = 200
FIRST_TIP = bytes(range(32))
PATIENCE_MS = 60_000  # with a subscription or a message that must come
_frame = struct.Struct("<BI")  # topic, size of the body


class Traffic(NamedTuple):
    """Holds what a node publishes, and its answers to RPC."""

    frames: list[tuple[str, bytes]]  # topic and body, in order
    answers: dict[str, str]  # JSON by method and parameters
    n_tx: int


def make_traffic(n_tx: int, *, tx_per_block: int = TX_PER_BLOCK, n_unmined: int = 0) -> Traffic:
    """Make n_tx transactions that are mined, and some more that stay in the mempool."""
    maker = Maker(5)
    grown = RegtestTransaction((TxInput(bytes(32), 0),), (TxOutput(COIN_SAT, COIN_SCRIPT),) * COINS)
    maker.add(grown)
    tip = FIRST_TIP
    frames: list[tuple[str, bytes]] = []
    answers: dict[str, str] = {}
    known = {grown.txid: [output.value_sat for output in grown.outputs]}
    number = 1  # the mempool's sequence
    sizes = [tx_per_block] * (n_tx // tx_per_block)
    for height, size in enumerate(sizes, FIRST_HEIGHT + 1):
        sent = list(maker.block(size))
        for transaction, fee_sat in sent:
            frames += _entering(transaction, number)
            answers["getmempoolentry " + transaction.txid_hex] = _entry(transaction, fee_sat)
            known[transaction.txid] = [output.value_sat for output in transaction.outputs]
            number += 1
        number += size  # a block takes one for each
        block = _mined(sent, height, tip)
        frames += _connecting(block, sent)
        answers[f"getblock {block.hash} 3"] = _verbose(block, sent, known)
        answers[f"getblock {block.hash} 0"] = json.dumps(block.raw.hex())
        tip = bytes.fromhex(block.hash)[::-1]
    for _ in range(n_unmined // TX_PER_BLOCK):  # a block at a time, after which its coins can be spent
        for transaction, fee_sat in maker.block(TX_PER_BLOCK):
            frames += _entering(transaction, number)
            answers["getmempoolentry " + transaction.txid_hex] = _entry(transaction, fee_sat)
            number += 1
    return Traffic(frames, answers, sum(sizes) + n_unmined)


def _entering(transaction: RegtestTransaction, number: int) -> Iterator[tuple[str, bytes]]:
    yield "sequence", transaction.txid[::-1] + b"A" + number.to_bytes(8, "little")
    yield "rawtx", transaction.raw


def _connecting(block: MinedBlock, sent: list[Sent]) -> Iterator[tuple[str, bytes]]:
    yield "rawblock", block.raw
    for transaction in (block.coinbase, *(each for each, _ in sent)):
        yield "rawtx", transaction.raw
    yield "sequence", bytes.fromhex(block.hash) + b"C"


def _mined(sent: list[Sent], height: int, tip: bytes) -> MinedBlock:
    template = MiningTemplate(
        height=height,
        prev_hash=tip,
        version=0x20000000,
        bits=REGTEST_BITS,
        target=REGTEST_TARGET,
        time=1_700_000_000 + height,
        min_time=0,
        subsidy_sat=2_500_000_000,
    )
    return build_bench_block(template, sent, extranonce=height)


def _coins(sat: int) -> str:
    return f"{Decimal(sat).scaleb(-8):.8f}"


def _entry(transaction: RegtestTransaction, fee_sat: int) -> str:
    """Return an answer to getmempoolentry in the form of Bitcoin Core."""
    vsize, fee = transaction.vsize_vb, _coins(fee_sat)
    return (
        f'{{"vsize":{vsize},"weight":{transaction.weight_wu},"time":1700000000,"height":{FIRST_HEIGHT},'
        f'"descendantcount":1,"descendantsize":{vsize},"ancestorcount":1,"ancestorsize":{vsize},'
        f'"wtxid":"{transaction.wtxid[::-1].hex()}","fees":{{"base":{fee},"modified":{fee},'
        f'"ancestor":{fee},"descendant":{fee}}},"depends":[],"spentby":[],"bip125-replaceable":true,'
        '"unbroadcast":false}'
    )


def _verbose(block: MinedBlock, sent: list[Sent], known: dict[bytes, list[int]]) -> str:
    """Return an answer to getblock with verbosity 3, with the fields that the collector reads."""
    transactions = [f'{{"txid":"{block.coinbase.txid_hex}","vin":[{{}}],"vout":[]}}']
    for transaction, _ in sent:
        vin = ",".join(
            f'{{"txid":"{each.txid[::-1].hex()}","vout":{each.vout},'
            f'"prevout":{{"value":{_coins(known[each.txid][each.vout])}}}}}'
            for each in transaction.inputs
        )
        vout = ",".join(f'{{"value":{_coins(each.value_sat)}}}' for each in transaction.outputs)
        transactions.append(f'{{"txid":"{transaction.txid_hex}","vin":[{vin}],"vout":[{vout}]}}')
    return f'{{"hash":"{block.hash}","height":{block.height},"tx":[{",".join(transactions)}]}}'


def write_traffic(traffic: Traffic, folder: Path) -> None:
    """Write frames and answers for a node process."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "frames").open("wb") as file:
        for topic, body in traffic.frames:
            file.write(_frame.pack(ZMQ_TOPICS.index(topic), len(body)) + body)
    (folder / "answers.json").write_text(json.dumps(traffic.answers))


def read_frames(folder: Path) -> list[tuple[int, bytes]]:
    """Read the frames: number of the topic, and body."""
    data = (folder / "frames").read_bytes()
    frames = []
    at = 0
    while at < len(data):
        topic, size = _frame.unpack_from(data, at)
        at += _frame.size
        frames.append((topic, data[at : at + size]))
        at += size
    return frames


class Node:
    """Runs a process that publishes the frames of a folder, a number of them on request, and answers RPC.

    `is_full`: all transactions of the folder are in its mempool from the start.
    """

    def __init__(self, folder: Path, cpu: int | None = None, *, is_full: bool = False) -> None:
        command = [sys.executable, __file__, str(folder), "" if cpu is None else str(cpu), str(int(is_full))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint, self.rpc_url, *counts = self._process.stdout.readline().split()
        self.n_frames, self.n_waiting = map(int, counts)  # to be sent; in the mempool from the start

    def send(self, count: int) -> int:
        """Publish the next `count` messages; returns how many are left."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(count, file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def come_and_go(self, count: int) -> None:
        """Publish that so many transactions entered the mempool and left it, without their bodies."""
        self.send(-count)

    def close(self) -> None:
        """End the process of the node."""
        self._process.communicate()


def of_itself(endpoint: str) -> dict[str, str]:
    """Return the answers of a node about itself, by method; they never change."""
    chain = {
        "chain": "regtest",
        "blocks": FIRST_HEIGHT,
        "headers": FIRST_HEIGHT,
        "initialblockdownload": False,
    }
    return {
        "getblockchaininfo": json.dumps(chain | {"bestblockhash": FIRST_TIP[::-1].hex()}),
        "getnetworkinfo": '{"version":290000,"subversion":"/bench/","relayfee":0.00001}',
        "getmempoolinfo": '{"size":0,"bytes":0,"usage":0,"total_fee":0.0,"maxmempool":300000000,'
        '"mempoolminfee":0.00001,"minrelaytxfee":0.00001,"loaded":true}',
        "getzmqnotifications": json.dumps(
            [{"type": f"pub{topic}", "address": endpoint, "hwm": 100_000} for topic in ZMQ_TOPICS]
        ),
        "gettxout": '{"bestblock":"'
        + FIRST_TIP[::-1].hex()
        + '","confirmations":6,"value":0.05,"scriptPubKey":'
        '{"asm":"0 00","hex":"0020' + "00" * 32 + '","type":"witness_v0_scripthash"},"coinbase":false}',
        "getblockcount": str(FIRST_HEIGHT),
        "getblockhash": json.dumps(FIRST_TIP[::-1].hex()),
        "getbestblockhash": json.dumps(FIRST_TIP[::-1].hex()),
    }


def serve(
    answers: dict[str, str], endpoint: str, txids: list[str], n_events: Callable[[], int]
) -> ThreadingHTTPServer:
    """Answer RPC on a free port, in threads; `txids` are in the mempool at the start."""
    began_s = time.monotonic()
    said = of_itself(endpoint)
    listed = json.dumps(txids)

    def now(method: str) -> str | None:
        if method == "uptime":
            return str(1000 + int(time.monotonic() - began_s))
        if method == "getrawmempool":
            return f'{{"txids":{listed},"mempool_sequence":{n_events() + 1}}}'
        return said.get(method)

    def answer(call: dict[str, Any]) -> str:
        asked = " ".join(map(str, (call["method"], *(call.get("params") or ()))))
        result = now(call["method"]) or answers.get(asked)
        error = "null" if result else '{"code":-5,"message":"not recorded"}'
        return f'{{"result":{result or "null"},"error":{error},"id":{json.dumps(call["id"])}}}'

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1  # head and body together, as a node sends them

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            calls = asked if isinstance(asked, list) else [asked]
            text = ",".join(map(answer, calls))
            body = (f"[{text}]" if isinstance(asked, list) else text).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Suppress the log line of each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def take_in(frames: list[tuple[int, bytes]], answers: dict[str, str]) -> list[str]:
    """Put all transactions into the mempool and their bytes into the answers; return their txids."""
    bodies = [body for topic, body in frames if ZMQ_TOPICS[topic] == "rawtx"]
    txids = [name.partition(" ")[2] for name in answers]
    for txid, body in zip(txids, bodies, strict=True):
        answers[f"getrawtransaction {txid}"] = f'"{body.hex()}"'
    return txids


def be_node(folder: Path, cpu: str, *, is_full: bool) -> None:
    """Run as the process of a `Node`."""
    if cpu:
        os.sched_setaffinity(0, {int(cpu)})
    frames = read_frames(folder)
    answers = json.loads((folder / "answers.json").read_text())
    txids: list[str] = []
    if is_full:
        txids, frames = take_in(frames, answers), []
    socket = zmq.Context().socket(zmq.XPUB)  # as PUB, and it hears of subscriptions
    socket.set(zmq.RCVTIMEO, PATIENCE_MS)
    socket.set(zmq.SNDHWM, 0)
    socket.set(zmq.LINGER, 60_000)
    endpoint = f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}"
    counters = [0, 0, 0]
    server = serve(answers, endpoint, txids, lambda: counters[0])
    print(endpoint, f"http://127.0.0.1:{server.server_port}", len(frames), len(txids), flush=True)
    names = [topic.encode() for topic in ZMQ_TOPICS]
    heard: set[bytes] = set()  # topics that somebody subscribes to; messages of others would be lost
    at = n_passing = 0

    def publish(topic: int, body: bytes) -> None:
        while names[topic] not in heard:
            wanted = socket.recv()[1:]
            heard.update(name for name in names if name.startswith(wanted))
        socket.send_multipart([names[topic], body, counters[topic].to_bytes(4, "little")])
        counters[topic] += 1

    for line in sys.stdin:
        for _ in range(-int(line)):
            txid = (1 << 255 | n_passing).to_bytes(32, "big")
            for letter in (b"A", b"R"):
                publish(0, txid + letter + (counters[0] + 1).to_bytes(8, "little"))
            n_passing += 1
        end = min(at + max(int(line), 0), len(frames))
        for topic, body in frames[at:end]:
            publish(topic, body)
        at = end
        print(len(frames) - at, flush=True)
    socket.context.destroy()


if __name__ == "__main__":
    be_node(Path(sys.argv[1]), sys.argv[2], is_full=sys.argv[3] == "1")
