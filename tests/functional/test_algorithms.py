"""Test that the marts name the algorithms of real nodes of different policy, and of two assemblers.

Four pools take turns. Two let a node make the template: one as Bitcoin Core would, one with a large area that
Bitcoin Knots sorts by the age of coins. The others take the oldest first, and chunks of clusters. A third
node is watched by the collector.
"""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from analysis.database import open_database
from analysis.engine import build
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest.block_assembly import Candidate, Order, fill, first_come_order
from collector.regtest.mining import build_block, submit, take_template
from collector.regtest.preparation import COINBASE_MATURITY
from collector.regtest.scripts import COIN_KINDS, payment_script
from collector.regtest.transaction import FINAL, RegtestTransaction, TxOutput
from collector.regtest.wallet import Coin, Wallet
from tests.bench.assemblers import chunk_order
from tests.functional.running import DEADLINE_S, collecting, settings_for, wait_complete, wait_for_log

pytestmark = pytest.mark.bitcoind

ROUNDS: Final = 5
N_SENT: Final = 60  # before each block, besides families
N_FAMILIES: Final = 8
BLOCK_WU: Final = 40_000
COIN_SAT: Final = (36_000_000, 49_000_000)
COINS_PER_BLOCK: Final = 100
AGED_BLOCKS: Final = (
    400  # so that value times age / size is above the least that Bitcoin Knots calls a priority
)
POLL_S: Final = 0.05
ORDERINGS: Final = {
    "core-like": ["ancestor_sets", "data_cost"],  # the same where no transaction has an envelope
    "coin-age": ["own"],
    "first-come": ["first_come"],
    "cluster": ["chunks"],
}


class Traffic:
    """Sends transactions to a node, and remembers those that wait."""

    def __init__(self, rpc: RpcClient, wallet: Wallet, draw: random.Random) -> None:
        self.rpc, self.wallet, self.draw = rpc, wallet, draw
        self.view: dict[str, Candidate] = {}
        self.n_sent = 0

    def send(self) -> None:
        """Send payments, and parents of two children that pay more."""
        for number in range(N_SENT):
            self._pay([self.wallet.take()], self._feerate())
            if number < N_FAMILIES:
                feerate = self._feerate()
                parent = self._pay([self.wallet.take()], self.draw.uniform(1.1, feerate), n_coins=2)
                for coin in parent:
                    self._pay([coin], 2 * feerate * self.draw.uniform(0.8, 1.2))

    def _feerate(self) -> float:
        return 3 + self.draw.lognormvariate(2.3, 0.9)

    def _pay(self, coins: list[Coin], feerate: float, n_coins: int = 1) -> list[Coin]:
        """Spend coins on as many as asked for, at a feerate in sat/vB; return these."""
        kind = COIN_KINDS["p2wsh"]
        seed = self.n_sent.to_bytes(8, "little")
        others = [TxOutput(1_000, payment_script("p2wpkh", seed))] * self.draw.randrange(1, 6)
        total_sat = sum(coin.value_sat for coin in coins) - sum(each.value_sat for each in others)
        inputs = tuple(coin.spend(FINAL) for coin in coins)
        drafted = RegtestTransaction(inputs, (*[TxOutput(0, kind.script)] * n_coins, *others))
        fee_sat = round(feerate * drafted.vsize_vb)
        value_sat = (total_sat - fee_sat) // n_coins
        fee_sat = total_sat - value_sat * n_coins
        sent = RegtestTransaction(inputs, (*[TxOutput(value_sat, kind.script)] * n_coins, *others))
        self.rpc.call("sendrawtransaction", sent.raw.hex(), 0)
        self.n_sent += 1
        parents = {coin.txid[::-1].hex() for coin in coins}
        self.view[sent.txid_hex] = Candidate(
            txid=sent.txid_hex,
            raw=sent.raw,
            fee_sat=fee_sat,
            vsize_vb=sent.vsize_vb,
            weight_wu=sent.weight_wu,
            parents=frozenset(parents & self.view.keys()),
            arrival=self.n_sent,
            is_planted=False,
        )
        return [Coin(txid=sent.txid, vout=vout, value_sat=value_sat, kind=kind) for vout in range(n_coins)]


def aged_wallet(rpc: RpcClient, n_coins: int, draw: random.Random) -> Wallet:
    """Return a wallet of large coins of one age and of different values."""
    kind = COIN_KINDS["p2wsh"]
    mined = rpc.call("generatetodescriptor", -(-n_coins // COINS_PER_BLOCK), f"raw({kind.script.hex()})")
    rpc.call("generatetodescriptor", COINBASE_MATURITY, "raw(51)")
    coins: list[Coin] = []
    for block_hash in mined:
        (coinbase,) = rpc.call("getblock", block_hash, 2)["tx"]
        value_sat = int(coinbase["vout"][0]["value"] * 10**8)
        source = Coin(txid=bytes.fromhex(coinbase["txid"])[::-1], vout=0, value_sat=value_sat, kind=kind)
        values = [draw.randrange(*COIN_SAT) for _ in range(COINS_PER_BLOCK)]
        outputs = tuple(TxOutput(value, kind.script) for value in values)
        split = RegtestTransaction((source.spend(FINAL),), outputs)
        rpc.call("sendrawtransaction", split.raw.hex(), 0)
        coins += [Coin(txid=split.txid, vout=i, value_sat=v, kind=kind) for i, v in enumerate(values)]
    rpc.call("generatetodescriptor", AGED_BLOCKS, "raw(51)")
    return Wallet(coins)


def template_order(rpc: RpcClient) -> Order:
    """Return the order in which the node itself would mine."""
    answer: dict[str, Any] = rpc.call("getblocktemplate", {"rules": ["segwit"]})
    return [[row["txid"] for row in answer["transactions"]]]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(POLL_S)


def follow(watched: RpcClient, view: Mapping[str, Candidate], *others: RpcClient) -> None:
    """Give other nodes the tip and the mempool of the watched one, all of which is in `view`, parents first.

    Transactions are handed over: a node that still catches up ignores those that its peers announce.
    """
    tip, waiting = watched.call("getbestblockhash"), set(watched.call("getrawmempool"))
    for rpc in others:
        wait_for(lambda rpc=rpc: rpc.call("getbestblockhash") == tip)  # type: ignore[misc]
        missing = waiting - set(rpc.call("getrawmempool"))
        for candidate in view.values():
            if candidate.txid in missing:
                rpc.call("sendrawtransaction", candidate.raw.hex(), 0)
        wait_for(lambda rpc=rpc: set(rpc.call("getrawmempool")) == waiting)  # type: ignore[misc]


def play(watched: RegtestNode, core_like: RegtestNode, coin_age: RegtestNode, traffic: Traffic) -> None:
    """Let each pool mine a block in each round."""
    nodes = [core_like.client(), coin_age.client()]
    orders: Mapping[str, Callable[[], Order]] = {
        "core-like": lambda: template_order(nodes[0]),
        "coin-age": lambda: template_order(nodes[1]),
        "first-come": lambda: first_come_order(traffic.view),
        "cluster": lambda: chunk_order(traffic.view),
    }
    for number in range(ROUNDS * len(orders)):
        pool = list(orders)[number % len(orders)]
        traffic.send()
        follow(watched.client(), traffic.view, *nodes)
        chosen = [traffic.view[txid] for txid in _filled(traffic, pool, orders[pool]())]
        template = take_template(watched.client())
        script = payment_script("p2wpkh", pool.encode())
        block = build_block(template, chosen, tag=_tag(pool), payout_script=script, extranonce=number)
        submit(watched.client(), block)
        for entry in chosen:
            del traffic.view[entry.txid]


def _filled(traffic: Traffic, pool: str, order: Order) -> Iterator[str]:
    """Yield what fits into a block; a node's template is taken as it is."""
    if pool in {"core-like", "coin-age"}:
        yield from order[0]
    else:
        yield from (entry.txid for entry in fill(traffic.view, order, weight_wu=BLOCK_WU))


def _tag(pool: str) -> bytes:
    return f"/<{pool}>/".encode()


def write_rules(folder: Path) -> Path:
    """Write a rule for each pool, and return the folder."""
    folder.mkdir()
    for pool in ORDERINGS:
        text = f'name = "{pool}"\n\n[[rules]]\ntag = "{_tag(pool).decode()}"\nsource = "made up"\n'
        (folder / f"{pool}.toml").write_text(text)
    return folder


def test_nodes_of_different_policy_are_told_apart(tmp_path: Path) -> None:
    """Each pool's algorithm is left open, and nothing that orders otherwise."""
    seed = random.SystemRandom().randrange(1_000_000)
    bitcoind = find_bitcoind()
    limit = f"-blockmaxweight={BLOCK_WU}"
    with (
        RegtestNode(bitcoind, listen=True) as watched,
        RegtestNode(bitcoind, options=(limit,)) as core_like,
        RegtestNode(bitcoind, options=(limit, "-blockprioritysize=100000")) as coin_age,
    ):
        n_coins = ROUNDS * len(ORDERINGS) * (N_SENT + N_FAMILIES)
        draw = random.Random(seed)  # noqa: S311 - a test wants repeatable chance
        wallet = aged_wallet(watched.client(), n_coins, draw)
        for node in (core_like, coin_age):
            node.connect(watched)
        traffic = Traffic(watched.client(), wallet, draw)
        settings = settings_for(tmp_path / "dataset", watched=watched)
        with collecting(settings) as logs:
            wait_for_log(logs, "mempool.in_step")
            play(watched, core_like, coin_age, traffic)
            wait_complete(settings, watched)

    rules = write_rules(tmp_path / "pools")
    result = build(tmp_path / "dataset", rules, tmp_path / "a.duckdb", marts=["pool_algorithm"])
    with open_database(result.database) as connection:
        rows = connection.execute("SELECT pool, left_open FROM pool_algorithm WHERE pool != 'unknown'")
        found = rows.fetchall()
    assert sorted(found) == sorted(ORDERINGS.items()), f"seed {seed}"
