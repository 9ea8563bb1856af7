"""Turn the bytes of transactions, as the network carries them, into records: one at a time, or many at once.

`decode_transaction` takes one transaction and says what is wrong with it. It raises nothing but DecodeError,
whatever the bytes are, and refuses a count that the remaining bytes cannot hold. It also demands what holds
for every transaction that a node relays: at least one input and one output, amounts of 0 to 21 million coins,
and lengths in their shortest form. Format: https://developer.bitcoin.org/reference/transactions.html and
BIP 144.

`decode_transactions` takes many, with compiled loops and batch hashing. It makes the same records and accepts
the same bytes; the tests compare both with python-bitcoinlib. Bytes that the compiled walk refuses go to
`decode_transaction`, which says what is wrong with them. Hashes are in internal byte order.

`RecentTransactions` decodes what `rawtx` messages bring, and keeps it until an event needs it. The node
publishes `rawtx` when a transaction enters the mempool, and again when a block that contains it is connected
or disconnected. A transaction whose bytes were seen lately is not decoded again.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from struct import error as StructError  # noqa: N812 - the module calls its exception `error`
from typing import Final, NamedTuple, TypedDict

import numpy as np

import gpuhash
from collector.codec.arrays import FAIL, Bytes, Integers, Records
from collector.codec.format import MAX_MONEY_SAT, NO_HASH, NO_INDEX, OUTPOINT_BYTES, TXID_BYTES, VALUE_BYTES
from collector.codec.traits import transaction_traits
from collector.codec.walk import Layout, compact_size_width, walk_transactions
from collector.dataset.schema import OUTPUT_TYPES
from collector.errors import DecodeError
from gpuhash.compiled import compiler
from gpuhash.packing import Offsets

compiled = compiler(__package__)

FEW: Final = 8  # up to this many transactions decode faster one by one
KEEP_US: Final = 10_000_000  # how long bytes wait for an event that was received after them
MOST_KEPT: Final = 50_000  # we ask the node by RPC for a transaction that was dropped too early
MOST_SEEN: Final = 200_000  # how many digests each of the two generations holds

# The smallest size of each, to refuse counts that the remaining bytes cannot hold.
_INPUT_BYTES: Final = 41
_OUTPUT_BYTES: Final = 9
_VERSION_BYTES: Final = 4
_MARKER_BYTES: Final = 2  # BIP 144: marker and flag, when there is witness data
_SHORT_SIZE: Final = 252  # the last length that is written in one byte
_RBF_SEQUENCE: Final = 0xFFFFFFFE  # BIP 125: anything below signals

_HASH: Final = np.dtype(f"V{TXID_BYTES}")

_u32 = Struct("<I").unpack_from
_input = Struct(
    "<32sIBI"
).unpack_from  # with an empty script; else the size of the script, and not the sequence
_output = Struct("<qB").unpack_from
_outpoint = Struct("<32sI").pack
_new = tuple.__new__  # makes a named tuple without a call of a Python function
_long_sizes: Final = {
    0xFD: (Struct("<H"), 0xFD),
    0xFE: (Struct("<I"), 1 << 16),
    0xFF: (Struct("<Q"), 1 << 32),
}


def outpoint(txid: bytes, index: int) -> bytes:
    """Return the 36 bytes of an outpoint: txid in internal byte order, then the index, little-endian."""
    return txid + index.to_bytes(4, "little")


def read_outpoint(outpoint: bytes) -> tuple[bytes, int]:
    """Return txid (32 bytes, internal order) and index of an outpoint in the form that `outpoint` returns."""
    return outpoint[:TXID_BYTES], int.from_bytes(outpoint[TXID_BYTES:], "little")


class TxIn(NamedTuple):
    """Holds one input of a transaction. The script is raw bytes; whoever made the transaction chose them."""

    prev_txid: bytes  # 32 bytes, internal order
    prev_index: int
    script: bytes
    sequence: int


class TxOut(NamedTuple):
    """Holds one output of a transaction."""

    value_sat: int
    script: bytes


class TxTraits(TypedDict):
    """Holds what policies of nodes ask about a transaction, by the names of the columns of `mempool_txs`.

    Transactions with equal traits share one dictionary, so the dictionary and its list are never changed.
    """

    op_return_bytes: int
    n_dust_outputs: int
    n_envelopes: int
    envelope_bytes: int
    output_types: list[str]


class Transaction(NamedTuple):
    """Holds one decoded transaction; hashes are in internal byte order.

    Its inputs and outputs are decoded when they are read.
    """

    txid: bytes
    wtxid: bytes  # of the serialisation with witness; equals txid when there is none
    version: int  # as the node shows it: unsigned
    locktime: int
    size_bytes: int  # with witness
    stripped_bytes: int  # without witness
    n_inputs: int
    n_outputs: int
    output_value_sat: int
    has_witness: bool
    is_coinbase: bool  # its one input spends nothing
    signals_rbf: bool  # that it may be replaced, BIP 125; a coinbase never does
    spent: bytes  # its outpoints back to back, 36 bytes each as in `outpoint`
    values_sat: bytes  # of its outputs back to back, 8 bytes each, little-endian
    source: bytes  # the bytes it was read from, and its position in them
    begin: int
    traits: TxTraits | None = None  # `decode_transactions` alone finds them

    @property
    def inputs(self) -> tuple[TxIn, ...]:
        """Return the inputs of the transaction, decoded from its bytes anew at each reading."""
        return _inputs(self.source, self._inputs_at)[0]

    @property
    def outputs(self) -> tuple[TxOut, ...]:
        """Return the outputs of the transaction, decoded from its bytes anew at each reading."""
        _, pos = _inputs(self.source, self._inputs_at)
        return _outputs(self.source, pos)[0]

    @property
    def outpoints(self) -> list[bytes]:
        """Return the outpoints that the transaction spends, each in the form that `outpoint` returns."""
        return [self.spent[at : at + OUTPOINT_BYTES] for at in range(0, len(self.spent), OUTPOINT_BYTES)]

    @property
    def _inputs_at(self) -> int:
        return self.begin + (_VERSION_BYTES + _MARKER_BYTES if self.has_witness else _VERSION_BYTES)

    @property
    def weight_wu(self) -> int:
        """Return the weight of the transaction in weight units (BIP 141)."""
        return self.stripped_bytes * 3 + self.size_bytes

    @property
    def vsize_vb(self) -> int:
        """Return the transaction's virtual size in vB: weight / 4, rounded up. Sigops are not counted."""
        return (self.stripped_bytes * 3 + self.size_bytes + 3) // 4


def decode_transaction(raw: bytes) -> Transaction:
    """Decode one serialised transaction, with or without witness, and return it.

    Raises DecodeError if the bytes end too early, go on after the transaction, or are not a transaction.
    """
    walk = walk_checked(raw, 0)
    if walk.end != len(raw):
        raise DecodeError(f"the transaction ends at byte {walk.end}, but there are {len(raw)} bytes")
    return walk.transaction(raw)


def decode_transactions(raws: Sequence[bytes]) -> list[Transaction | DecodeError]:
    """Decode serialised transactions and find their traits (dust, inscriptions and the like).

    Returns a list with one Transaction for each, or a DecodeError in place of one that cannot be decoded.
    """
    data, limits = gpuhash.join(raws)
    layout = walk_transactions(data, limits)
    is_faulty = (layout.txs["end"] == FAIL).tolist()
    if any(is_faulty):
        sound = iter(
            decode_transactions([raw for raw, fault in zip(raws, is_faulty, strict=True) if not fault])
        )
        return [
            _decode_one(raw) if fault else next(sound) for raw, fault in zip(raws, is_faulty, strict=True)
        ]
    traits = _traits(data, layout)
    if len(raws) <= FEW:
        return [decode_transaction(raw)._replace(traits=each) for raw, each in zip(raws, traits, strict=True)]
    wtxids = gpuhash.txids(data, limits)
    txids = _txids(wtxids, data, layout.txs)
    return list(
        transaction_records(data, layout, txids, wtxids, sources=raws, begins=repeat(0), traits=traits)
    )


def transaction_ids(data: Bytes, layout: Layout) -> tuple[Bytes, Bytes]:
    """Return txids and wtxids of all transactions of blocks, uint8[n_txs, 32] each, in internal byte order.

    Every block must be sound. Transactions stand back to back in the data, so all are hashed where they are.
    What stands between the transactions of two blocks is hashed with them, and its hashes are dropped.
    """
    blocks, txs = layout.blocks, layout.txs
    block_of_tx = np.repeat(np.arange(len(blocks)), blocks["n_tx"])
    rows = np.arange(len(txs)) + block_of_tx + 1
    limits = np.empty(len(txs) + len(blocks) + 1, np.int64)
    limits[rows] = txs["begin"]
    limits[blocks["first_tx"] + np.arange(len(blocks))] = blocks["begin"]
    limits[-1] = len(data)
    wtxids = np.take(gpuhash.txids(data, limits), rows, axis=0)
    return _txids(wtxids, data, txs), wtxids


def stripped_bytes(txs: Records) -> Integers:
    """Return the size in bytes without witness of each transaction: version, inputs, outputs, lock time."""
    whole: Integers = txs["end"] - txs["begin"]
    without: Integers = txs["witness_at"] - txs["begin"] + 2
    return np.where(txs["witness_at"] > 0, without, whole)


class RecentTransactions:
    """Decodes the transactions of `rawtx` messages, and keeps them by txid while an event may need them."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Transaction, int]] = OrderedDict()
        # Digests of the bytes that were seen, in two generations: when the newer is full, the older goes.
        # A digest is Python's keyed 64-bit hash. If two collide, we ask the node by RPC for the transaction.
        self._newer: set[int] = set()
        self._older: set[int] = set()

    def decode_new(self, raws: Sequence[bytes], received_us: int) -> list[Transaction | DecodeError | None]:
        """Decode and keep the transactions among `raws` whose bytes have not come in the last seconds.

        Returns one result for each element of `raws`: the transaction, or the error of decoding it, or None
        when the same bytes came before. `received_us` is the time of receipt of the last of them, by the wall
        clock in microseconds.
        """
        newer, older, kept = self._newer, self._older, self._kept
        digests = list(map(hash, raws))
        first: dict[int, int] = {}
        for at, digest in enumerate(digests):
            if digest not in newer and digest not in older and digest not in first:
                first[digest] = at
        decoded = decode_transactions([raws[at] for at in first.values()])
        found: list[Transaction | DecodeError | None] = [None] * len(raws)
        for at, body in zip(first.values(), decoded, strict=True):
            found[at] = body
            if type(body) is Transaction:
                kept[body[0]] = body, received_us
        faulty: dict[int, DecodeError] = {}
        if DecodeError in set(map(type, decoded)):  # faulty bytes are reported each time they come
            pairs = zip(first, decoded, strict=True)
            faulty = {digest: body for digest, body in pairs if isinstance(body, DecodeError)}
            found = [faulty.get(digest, body) for digest, body in zip(digests, found, strict=True)]
        newer.update(first.keys() - faulty.keys() if faulty else first)
        if len(self._newer) > MOST_SEEN:
            self._older, self._newer = self._newer, set()
        return found

    def get(self, txid: bytes) -> Transaction | None:
        """Return the kept transaction of a `rawtx` message by its txid; None when there is none."""
        found = self._kept.get(txid)
        return None if found is None else found[0]

    def pop(self, txid: bytes) -> Transaction | None:
        """Remove and return the kept transaction of a `rawtx` message by txid; None when there is none."""
        found = self._kept.pop(txid, None)
        return None if found is None else found[0]

    def forget(self, until_us: int) -> None:
        """Drop the transactions received over ten seconds before `until_us`, and the oldest of too many.

        All events received before `until_us` must have been applied. So a transaction is kept for as long as
        its event waits, however late it is applied.
        """
        while self._kept:
            txid, (_, received_us) = next(iter(self._kept.items()))
            if until_us - received_us <= KEEP_US and len(self._kept) <= MOST_KEPT:
                return
            del self._kept[txid]


class TxWalk(NamedTuple):
    """Holds the parts of a transaction that one pass over its bytes finds.

    Positions count from the first byte of the bytes that the pass goes over.
    """

    start: int
    end: int
    version: int
    locktime: int
    inputs: tuple[TxIn, ...]
    outputs: tuple[TxOut, ...]
    output_value_sat: int
    witness_at: int  # where the outputs end and the first witness stack begins; 0: no witness

    def _stripped(self, raw: bytes) -> bytes:
        """Return the serialisation without witness, whose hash is the txid."""
        start, end = self.start, self.end
        if not self.witness_at:
            return raw[start:end]
        return raw[start : start + 4] + raw[start + 6 : self.witness_at] + raw[end - 4 : end]

    def transaction(self, raw: bytes) -> Transaction:
        """Return these parts as a Transaction record; `raw` is all the bytes that the parse went over."""
        stripped = self._stripped(raw)
        txid = sha256d(stripped)
        first = self.inputs[0]
        is_coinbase = first.prev_index == NO_INDEX and first.prev_txid == NO_HASH and len(self.inputs) == 1
        return Transaction(
            txid,
            sha256d(raw[self.start : self.end]) if self.witness_at else txid,
            self.version,
            self.locktime,
            self.end - self.start,
            len(stripped),
            len(self.inputs),
            len(self.outputs),
            self.output_value_sat,
            self.witness_at > 0,
            is_coinbase,
            not is_coinbase and any(spent.sequence < _RBF_SEQUENCE for spent in self.inputs),
            b"".join([_outpoint(spent.prev_txid, spent.prev_index) for spent in self.inputs]),
            b"".join([output.value_sat.to_bytes(8, "little") for output in self.outputs]),
            raw,
            self.start,
        )


def walk_checked(raw: bytes, pos: int) -> TxWalk:
    """Return the parts of the transaction at byte `pos`; raise DecodeError when the bytes end inside it."""
    try:
        return _walk(raw, pos)
    except (IndexError, StructError):
        raise DecodeError(f"the bytes end inside the transaction that begins at byte {pos}") from None


def _walk(raw: bytes, start: int) -> TxWalk:
    """Return the parts of the transaction at byte `start`.

    Raises IndexError or struct.error when the bytes end inside it, DecodeError for other faults.
    """
    (version,) = _u32(raw, start)
    pos = start + 4
    # An input count of 0 is BIP 144's marker; the byte after it is the flag.
    has_witness = raw[pos] == 0
    if has_witness:
        if raw[pos + 1] != 1:
            raise DecodeError(
                f"the transaction at byte {start} has no inputs, or witness flag {raw[pos + 1]}"
            )
        pos += 2
    inputs, pos = _inputs(raw, pos)
    outputs, value_sat, pos = _outputs(raw, pos)
    witness_at = 0
    if has_witness:
        witness_at = pos
        pos = _skip_witness(raw, pos, len(inputs))
    (locktime,) = _u32(raw, pos)
    return TxWalk(start, pos + 4, version, locktime, inputs, outputs, value_sat, witness_at)


def _inputs(raw: bytes, pos: int) -> tuple[tuple[TxIn, ...], int]:
    count, pos = read_size(raw, pos)
    if not count:
        raise DecodeError(f"the transaction has no inputs (byte {pos})")
    if count * _INPUT_BYTES > len(raw) - pos:
        raise DecodeError(f"inputs claimed at byte {pos}: {count}, more than the remaining bytes can hold")
    inputs = []
    for _ in range(count):
        prev_txid, prev_index, size, sequence = _input(raw, pos)
        if size:
            begin = pos + 37
            if size > _SHORT_SIZE:
                size, begin = read_size(raw, begin - 1)
            pos = begin + size
            # Reading the sequence, which follows the script, also checks that the script is complete.
            (sequence,) = _u32(raw, pos)
            inputs.append(_new(TxIn, (prev_txid, prev_index, raw[begin:pos], sequence)))
            pos += 4
        else:
            inputs.append(_new(TxIn, (prev_txid, prev_index, b"", sequence)))
            pos += _INPUT_BYTES
    return tuple(inputs), pos


def _outputs(raw: bytes, pos: int) -> tuple[tuple[TxOut, ...], int, int]:
    count, pos = read_size(raw, pos)
    if not count:
        raise DecodeError(f"the transaction has no outputs (byte {pos})")
    if count * _OUTPUT_BYTES > len(raw) - pos:
        raise DecodeError(f"outputs claimed at byte {pos}: {count}, more than the remaining bytes can hold")
    outputs = []
    total_sat = 0
    for _ in range(count):
        value_sat, size = _output(raw, pos)
        if not 0 <= value_sat <= MAX_MONEY_SAT:
            raise DecodeError(f"an output of {value_sat} sat at byte {pos}: not 0 to {MAX_MONEY_SAT}")
        size = raw[pos + 8]
        begin = pos + 9
        if size > _SHORT_SIZE:
            size, begin = read_size(raw, begin - 1)
        # A script that is cut off is noticed later: no bytes are left for the lock time.
        pos = begin + size
        outputs.append(_new(TxOut, (value_sat, raw[begin:pos])))
        total_sat += value_sat
    if total_sat > MAX_MONEY_SAT:
        raise DecodeError(f"the outputs of one transaction sum to {total_sat} sat: above {MAX_MONEY_SAT}")
    return tuple(outputs), total_sat, pos


def _skip_witness(raw: bytes, pos: int, n_inputs: int) -> int:
    """Step over the witness stacks of n_inputs inputs; return the position after the stacks.

    Raises DecodeError when all stacks are empty: such a transaction must be written without witness.
    """
    begin = pos
    for _ in range(n_inputs):
        count = raw[pos]
        pos += 1
        if count > _SHORT_SIZE:
            count, pos = read_size(raw, pos - 1)
            if count > len(raw) - pos:
                raise DecodeError(
                    f"witness items claimed at byte {pos}: {count}, more than the remaining bytes can hold"
                )
        for _ in range(count):
            size = raw[pos]
            pos += 1
            if size > _SHORT_SIZE:
                size, pos = read_size(raw, pos - 1)
            pos += size
    if pos == begin + n_inputs:
        raise DecodeError(f"empty witness at byte {begin}: the transaction must be written without it")
    return pos


def read_size(raw: bytes, pos: int) -> tuple[int, int]:
    """Read a compact size at byte `pos`; return its value and the position after it.

    Raises DecodeError for one that is not in its shortest form, or larger than the number of bytes.
    """
    first = raw[pos]
    if first <= _SHORT_SIZE:
        return first, pos + 1
    number, least = _long_sizes[first]
    (value,) = number.unpack_from(raw, pos + 1)
    if value < least:
        raise DecodeError(f"length {value} at byte {pos} is not written in its shortest form")
    if value > len(raw):
        raise DecodeError(f"length {value} at byte {pos} is beyond the {len(raw)} bytes there are")
    return value, pos + 1 + number.size


def sha256d(data: bytes) -> bytes:
    """Return the double SHA-256 of `data`, 32 bytes in internal byte order."""
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()


def _decode_one(raw: bytes) -> Transaction | DecodeError:
    try:
        return decode_transaction(raw)
    except DecodeError as error:
        return error


def _txids(wtxids: Bytes, data: Bytes, txs: Records) -> Bytes:
    """Return the txids of transactions, uint8[n_txs, 32]: the hashes of their bytes without witness.

    A transaction that has no witness data has its wtxid as txid and is not hashed again.
    """
    with_witness = np.flatnonzero(txs["witness_at"])
    txids = wtxids.copy()
    if len(with_witness):
        txids[with_witness] = gpuhash.txids(*_without_witness(data, txs[with_witness]))
    return txids


def _without_witness(data: Bytes, txs: Records) -> tuple[Bytes, Offsets]:
    """Return the transactions serialised without witness, back to back, and the limits between them."""
    limits = np.zeros(len(txs) + 1, np.int64)
    np.cumsum(stripped_bytes(txs), out=limits[1:])
    flat = np.empty(limits[-1], np.uint8)
    _copy_stripped(data, txs, flat, limits)
    return flat, limits


def transaction_records(
    data: Bytes,
    layout: Layout,
    txids: Bytes,
    wtxids: Bytes,
    *,
    sources: Iterable[bytes],
    begins: Iterable[int],
    traits: Iterable[TxTraits | None],
) -> "map[Transaction]":
    """Yield a Transaction record for each transaction of a layout.

    `sources` has the bytes that each transaction was read from, `begins` its position in these bytes.
    """
    txs, n_inputs, n_outputs = layout.txs, len(layout.spends), len(layout.scripts)
    outpoints = np.empty(OUTPOINT_BYTES * n_inputs, np.uint8)
    values_sat = np.empty(VALUE_BYTES * n_outputs, np.uint8)
    copy_outpoints(data, layout.spends, layout.scripts, outpoints, values_sat)
    columns = zip(
        _hash_list(txids),
        _hash_list(wtxids),
        txs["version"].tolist(),
        txs["locktime"].tolist(),
        (txs["end"] - txs["begin"]).tolist(),
        stripped_bytes(txs).tolist(),
        txs["n_inputs"].tolist(),
        txs["n_outputs"].tolist(),
        txs["output_value_sat"].tolist(),
        (txs["witness_at"] > 0).tolist(),
        txs["is_coinbase"].tolist(),
        txs["signals_rbf"].tolist(),
        _cut(outpoints, np.append(txs["first_input"], n_inputs) * OUTPOINT_BYTES),
        _cut(values_sat, np.append(txs["first_output"], n_outputs) * VALUE_BYTES),
        sources,
        begins,
        traits,
        strict=False,  # some repeat without end
    )
    return map(_new, repeat(Transaction), columns)


def _traits(data: Bytes, layout: Layout) -> list[TxTraits]:
    """Return the traits of each transaction of a layout: OP_RETURN, dust, envelopes, types of outputs."""
    found, types = transaction_traits(data, layout)
    names = ("op_return_bytes", "n_dust_outputs", "n_envelopes", "envelope_bytes")
    columns = (found[name].tolist() for name in names)
    types_of_each = _cut(types, np.append(layout.txs["first_output"], len(types)))
    return list(map(_traits_of, *columns, types_of_each))


@lru_cache(maxsize=4096)
def _traits_of(
    op_return_bytes: int, n_dust_outputs: int, n_envelopes: int, envelope_bytes: int, types: bytes
) -> TxTraits:
    """Return the traits of one transaction as a TxTraits; `types` has a byte per output, its type number."""
    names = [OUTPUT_TYPES[number] for number in types]
    return {
        "op_return_bytes": op_return_bytes,
        "n_dust_outputs": n_dust_outputs,
        "n_envelopes": n_envelopes,
        "envelope_bytes": envelope_bytes,
        "output_types": names,
    }


def _hash_list(hashes: Bytes) -> list[bytes]:
    """Return the rows of uint8[n, 32] as byte strings."""
    found: list[bytes] = np.ascontiguousarray(hashes).view(_HASH)[:, 0].tolist()
    return found


def _cut(values: Bytes, limits: Integers) -> list[bytes]:
    """Return the parts values[limits[k]:limits[k + 1]] as byte strings."""
    whole, positions = values.tobytes(), limits.tolist()
    return list(map(whole.__getitem__, map(slice, positions, positions[1:])))


@compiled
def copy_outpoints(
    data: Bytes, spends: Integers, scripts: Integers, outpoints: Bytes, values_sat: Bytes
) -> None:
    """Copy the outpoint of each input to `outpoints` and the value of each output to `values_sat`.

    `spends` and `scripts` are the positions in `data` that a Layout holds. `outpoints` takes 36 bytes per
    input: txid in internal byte order, index little-endian. `values_sat` takes 8 bytes per output,
    little-endian. In `data`, the value of an output stands before the size of its script.
    """
    for k in range(len(spends)):
        for i in range(OUTPOINT_BYTES):
            outpoints[OUTPOINT_BYTES * k + i] = data[spends[k] + i]
    for k in range(len(scripts)):
        value_at = scripts[k, 0] - compact_size_width(scripts[k, 1] - scripts[k, 0]) - VALUE_BYTES
        for i in range(VALUE_BYTES):
            values_sat[VALUE_BYTES * k + i] = data[value_at + i]


@compiled
def _copy_stripped(data: Bytes, txs: Records, flat: Bytes, limits: Integers) -> None:
    """Copy each transaction without its witness data; transaction k goes to flat[limits[k]:limits[k + 1]]."""
    for k in range(len(txs)):
        begin, end, stripped = txs[k].begin, txs[k].end, limits[k + 1] - limits[k]
        # In the source, inputs and outputs stand two bytes later: marker and flag follow the version.
        # A loop from 0 over the whole compiles to wide moves; then both ends are put right.
        source, target = data[begin + 2 : begin + 2 + stripped], flat[limits[k] : limits[k + 1]]
        for i in range(stripped):
            target[i] = source[i]
        for i in range(4):
            target[i] = data[begin + i]
            target[stripped - 4 + i] = data[end - 4 + i]
