"""Make traffic on a node while a fault is played: payments, replacements, conflicts, chains and blocks."""

import random
import threading
import time
from collections.abc import Sequence

from collector.errors import CollectorError, NodeRefused
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, make_wallet
from collector.regtest.scripts import payment_script
from collector.regtest.transaction import TxOutput
from collector.regtest.wallet import Coin, Payment, pay

PAUSE_S = 0.004
BLOCK_EVERY = 60
NOBODY = "raw(51)"


class Traffic:
    """Makes transactions and blocks on one node, drawn from a seed; keeps the fee of each transaction."""

    def __init__(self, node: RegtestNode, n_coins: int, seed: int) -> None:
        self.fees_sat: dict[bytes, int] = {}
        self.n_sent = 0
        self._node = node
        self._wallet = make_wallet(node, n_coins, seed=seed)
        self._draw = random.Random(f"{seed} traffic")  # noqa: S311 - a scenario wants repeatable chance
        self._recent: list[Payment] = []
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._wallet)

    def send(self, count: int, rpc: RpcClient | None = None) -> None:
        """Send `count` plain payments as fast as the node takes them."""
        rpc = rpc or self._node.client()
        made = [self.payment() for _ in range(count)]
        for at in range(0, count, 500):
            part = made[at : at + 500]
            answers = rpc.batch([("sendrawtransaction", each.transaction.raw.hex()) for each in part])
            refused = [answer for answer in answers if isinstance(answer, Exception)]
            if refused:
                raise refused[0]
        self.n_sent += count

    def coin(self) -> Coin:
        """Return a fresh coin that the traffic will not spend itself."""
        return self._wallet.take()

    def mine(self, count: int = 1) -> list[str]:
        """Mine blocks from the node's mempool; return their hashes in hexadecimal."""
        return list(self._node.client().call("generatetodescriptor", count, NOBODY))

    def payment(self, *, feerate_sat_vb: float | None = None, outputs: Sequence[TxOutput] = ()) -> Payment:
        """Return a payment of a fresh coin, without sending it."""
        feerate = feerate_sat_vb or self._draw.uniform(2, 60)
        made = pay([self._wallet.take()], outputs, feerate_sat_vb=feerate, replaceable=True)
        return self._note(made)

    def begin(self) -> None:
        """Start to make random traffic in a thread, until `end` is called."""
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop the traffic; raise the error that it met, if any."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def busy(self, duration_s: float) -> None:
        """Make random traffic for this many seconds."""
        self.begin()
        time.sleep(duration_s)
        self.end()

    def _note(self, made: Payment) -> Payment:
        self.fees_sat[made.transaction.txid] = made.fee_sat
        return made

    def _run(self) -> None:
        try:
            self._go_on(self._node.client())
        except BaseException as error:  # noqa: BLE001 - `end` raises it
            self._error = error

    def _go_on(self, rpc: RpcClient) -> None:
        number = 0
        while not self._stop.wait(PAUSE_S):
            number += 1
            try:
                self._step(rpc, number)
            except NodeRefused:  # what it spends is mined or replaced by now
                self._recent.clear()
            except CollectorError:  # the node is away: that may be the fault we play
                self._recent.clear()
                rpc = self._node.client()
                self._stop.wait(0.2)

    def _step(self, rpc: RpcClient, number: int) -> None:
        if number % BLOCK_EVERY == 0:
            self._recent.clear()
            if number % (3 * BLOCK_EVERY) == 0:
                self._conflicting_block(rpc)
            else:
                rpc.call("generatetodescriptor", 1, NOBODY)
            return
        kind = self._draw.choices(["plain", "replacement", "child"], [6, 2, 2])[0]
        if kind == "plain" or not self._recent:
            made = self.payment()
        elif kind == "replacement":
            old = self._recent.pop(self._draw.randrange(len(self._recent)))
            rate = old.feerate_sat_vb * 1.5 + 5
            made = self._note(pay(old.spent, [], feerate_sat_vb=rate, replaceable=True))
        else:
            old = self._recent.pop(self._draw.randrange(len(self._recent)))
            paid = [TxOutput(1_000, payment_script("p2tr", self._draw.randbytes(8)))]
            made = self._note(pay([old.change], paid, feerate_sat_vb=self._draw.uniform(3, 40)))
        rpc.call("sendrawtransaction", made.transaction.raw.hex())
        self.n_sent += 1
        if made.change.value_sat > 100_000:
            self._recent.append(made)

    def _conflicting_block(self, rpc: RpcClient) -> None:
        """Mine a block with a transaction that conflicts with one in the mempool."""
        waiting = self.payment(feerate_sat_vb=4)
        rpc.call("sendrawtransaction", waiting.transaction.raw.hex())
        other = self._note(pay(waiting.spent, [], feerate_sat_vb=9))
        rpc.call("generateblock", NOBODY, [other.transaction.raw.hex()])
