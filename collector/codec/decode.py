"""Turn the bytes of transactions and blocks, as the network carries them, into records.

This decoder takes one transaction or block at a time and says what is wrong with it. Many at once go through
`collector.codec.decode_many`, which makes the same records and accepts the same bytes; the tests compare both
with python-bitcoinlib. Hashes are in internal byte order. A decoder raises nothing but DecodeError, whatever
the bytes are, and refuses a count that the remaining bytes cannot hold.

The decoder also demands what holds for every transaction and block that a node relays: at least one input and
one output, amounts of 0 to 21 million coins, lengths in their shortest form, and a coinbase as the first
transaction of a block and nowhere else.
Format: https://developer.bitcoin.org/reference/transactions.html and BIP 144.
"""

import hashlib
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError  # noqa: N812 - the module calls its exception `error`
from typing import Final, NamedTuple

from collector.dataset.schema import hash_hex
from collector.errors import DecodeError

HEADER_BYTES: Final = 80
MAX_MONEY_SAT: Final = 21_000_000 * 100_000_000
NO_HASH: Final = bytes(32)
NO_INDEX: Final = 0xFFFFFFFF
TXID_BYTES: Final = 32
OUTPOINT_BYTES: Final = 36
VALUE_BYTES: Final = 8

# The smallest size of each, to refuse counts that the remaining bytes cannot hold.
_INPUT_BYTES: Final = 41
_OUTPUT_BYTES: Final = 9
_TRANSACTION_BYTES: Final = 60
_VERSION_BYTES: Final = 4
_MARKER_BYTES: Final = 2  # BIP 144: marker and flag, when there is witness data
_SHORT_SIZE: Final = 252  # the last length that is written in one byte
_RBF_SEQUENCE: Final = 0xFFFFFFFE  # BIP 125: anything below signals
_MAX_INT64: Final = (1 << 63) - 1

_u32 = Struct("<I").unpack_from
_input = Struct(
    "<32sIBI"
).unpack_from  # with an empty script; else the size of the script, and not the sequence
_output = Struct("<qB").unpack_from
_outpoint = Struct("<32sI").pack
_new = tuple.__new__  # makes a named tuple without a call of a Python function
_header = Struct("<i32s32sIII").unpack_from
_long_sizes: Final = {
    0xFD: (Struct("<H"), 0xFD),
    0xFE: (Struct("<I"), 1 << 16),
    0xFF: (Struct("<Q"), 1 << 32),
}


def outpoint(txid: bytes, index: int) -> bytes:
    """Return an outpoint as a transaction carries it: txid in internal byte order, index little-endian."""
    return txid + index.to_bytes(4, "little")


class TxIn(NamedTuple):
    """One input of a transaction. The script is raw bytes; whoever made the transaction chose them."""

    prev_txid: bytes  # 32 bytes, internal order
    prev_index: int
    script: bytes
    sequence: int


class TxOut(NamedTuple):
    """One output of a transaction."""

    value_sat: int
    script: bytes


class Transaction(NamedTuple):
    """One transaction, hashes in internal byte order.

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

    @property
    def inputs(self) -> tuple[TxIn, ...]:
        """The inputs, decoded from the bytes anew at each reading."""
        return _inputs(self.source, self._inputs_at)[0]

    @property
    def outputs(self) -> tuple[TxOut, ...]:
        """The outputs, decoded from the bytes anew at each reading."""
        _, pos = _inputs(self.source, self._inputs_at)
        return _outputs(self.source, pos)[0]

    @property
    def outpoints(self) -> list[bytes]:
        """The outpoints that the inputs spend, each in the form that `outpoint` returns."""
        return [self.spent[at : at + OUTPOINT_BYTES] for at in range(0, len(self.spent), OUTPOINT_BYTES)]

    @property
    def _inputs_at(self) -> int:
        return self.begin + (_VERSION_BYTES + _MARKER_BYTES if self.has_witness else _VERSION_BYTES)

    @property
    def weight_wu(self) -> int:
        """Weight of the transaction in weight units, BIP 141."""
        return self.stripped_bytes * 3 + self.size_bytes

    @property
    def vsize_vb(self) -> int:
        """Virtual size of the transaction: weight / 4, rounded up. Sigops are not counted."""
        return (self.stripped_bytes * 3 + self.size_bytes + 3) // 4


class Header(NamedTuple):
    """A block header; hashes in internal byte order."""

    version: int  # signed, as the node shows it
    prev_hash: bytes
    merkle_root: bytes
    time_s: int  # seconds since 1970 UTC, chosen by the miner
    bits: int
    nonce: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block and all its transactions. Hashes are in internal byte order."""

    header: Header
    block_hash: bytes
    transactions: tuple[Transaction, ...]
    size_bytes: int  # with witness
    stripped_bytes: int  # without witness
    coinbase_witness: tuple[
        bytes, ...
    ]  # the witness stack of its one input, where BIP 141 keeps the reserved value

    @property
    def coinbase(self) -> Transaction:
        """The first transaction of the block."""
        return self.transactions[0]

    @property
    def weight_wu(self) -> int:
        """Weight of the block in weight units, BIP 141."""
        return self.stripped_bytes * 3 + self.size_bytes


def decode_header(raw: bytes) -> tuple[Header, bytes]:
    """Decode the first 80 bytes; return the header and its hash. Raises DecodeError for fewer bytes."""
    if len(raw) < HEADER_BYTES:
        raise DecodeError(f"{len(raw)} bytes are not a block: the header alone has {HEADER_BYTES}")
    return Header(*_header(raw)), _sha256d(raw[:HEADER_BYTES])


def decode_transaction(raw: bytes) -> Transaction:
    """Decode one serialised transaction, with or without witness.

    Raises DecodeError if the bytes end too early, go on after the transaction, or are not a transaction.
    """
    walk = _walk_checked(raw, 0)
    if walk.end != len(raw):
        raise DecodeError(f"{len(raw) - walk.end} bytes follow the transaction of {walk.end} bytes")
    return walk.transaction(raw)


def decode_block(raw: bytes) -> Block:
    """Decode one serialised block. Raises DecodeError if the bytes are not a complete block.

    Whether the header commits to the transactions is not checked here: `verify.verify_block` does that.
    """
    header, block_hash = decode_header(raw)
    walks, transactions_at = _walk_block(raw)
    transactions = tuple(walk.transaction(raw) for walk in walks)
    _check_contents(transactions, block_hash)
    return Block(
        header=header,
        block_hash=block_hash,
        transactions=transactions,
        size_bytes=len(raw),
        stripped_bytes=transactions_at + sum(transaction.stripped_bytes for transaction in transactions),
        coinbase_witness=coinbase_stack(raw, walks[0].witness_at),
    )


class _Walk(NamedTuple):
    """The parts of a transaction that one pass over its bytes finds; positions are in all the bytes."""

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
        """Make the Transaction; raw is all the bytes that the pass went over."""
        stripped = self._stripped(raw)
        txid = _sha256d(stripped)
        first = self.inputs[0]
        is_coinbase = first.prev_index == NO_INDEX and first.prev_txid == NO_HASH and len(self.inputs) == 1
        return Transaction(
            txid,
            _sha256d(raw[self.start : self.end]) if self.witness_at else txid,
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


def _walk_checked(raw: bytes, pos: int) -> _Walk:
    """Walk over one transaction; raise DecodeError when the bytes end inside it."""
    try:
        return _walk(raw, pos)
    except (IndexError, StructError):
        raise DecodeError(f"the bytes end inside the transaction that begins at byte {pos}") from None


def _walk_block(raw: bytes) -> tuple[list[_Walk], int]:
    """Walk over the transactions of a block; return what was found and where the first one begins."""
    try:
        count, pos = _size(raw, HEADER_BYTES)
    except (IndexError, StructError):
        raise DecodeError("the bytes end before the number of transactions") from None
    if count * _TRANSACTION_BYTES > len(raw) - pos:
        raise DecodeError(f"a block of {len(raw)} bytes cannot hold the {count} transactions it claims")
    if not count:
        raise DecodeError("the block has no transactions; every block has a coinbase")
    transactions_at = pos
    walks = []
    for _ in range(count):
        walk = _walk_checked(raw, pos)
        walks.append(walk)
        pos = walk.end
    if pos != len(raw):
        raise DecodeError(f"{len(raw) - pos} bytes follow the {count} transactions of the block")
    return walks, transactions_at


def _check_contents(transactions: tuple[Transaction, ...], block_hash: bytes) -> None:
    """Raise DecodeError unless only the first transaction is a coinbase and the outputs fit 64 bits."""
    where = f"block {hash_hex(block_hash)}"
    if not transactions[0].is_coinbase:
        raise DecodeError(f"{where}: the first transaction is not a coinbase")
    for index, transaction in enumerate(transactions[1:], start=1):
        if transaction.is_coinbase:
            raise DecodeError(f"{where}: transaction {index} is a second coinbase")
    if sum(transaction.output_value_sat for transaction in transactions) > _MAX_INT64:
        raise DecodeError(f"{where}: its outputs sum to more than 64 bits hold")


def _walk(raw: bytes, start: int) -> _Walk:
    """Walk over one transaction; raise IndexError or struct.error when the bytes end inside it."""
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
    return _Walk(start, pos + 4, version, locktime, inputs, outputs, value_sat, witness_at)


def _inputs(raw: bytes, pos: int) -> tuple[tuple[TxIn, ...], int]:
    count, pos = _size(raw, pos)
    if not count:
        raise DecodeError(f"the transaction has no inputs (byte {pos})")
    if count * _INPUT_BYTES > len(raw) - pos:
        raise DecodeError(f"{count} inputs at byte {pos}: more than the remaining bytes can hold")
    inputs = []
    for _ in range(count):
        prev_txid, prev_index, size, sequence = _input(raw, pos)
        if size:
            begin = pos + 37
            if size > _SHORT_SIZE:
                size, begin = _size(raw, begin - 1)
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
    count, pos = _size(raw, pos)
    if not count:
        raise DecodeError(f"the transaction has no outputs (byte {pos})")
    if count * _OUTPUT_BYTES > len(raw) - pos:
        raise DecodeError(f"{count} outputs at byte {pos}: more than the remaining bytes can hold")
    outputs = []
    total_sat = 0
    for _ in range(count):
        value_sat, size = _output(raw, pos)
        if not 0 <= value_sat <= MAX_MONEY_SAT:
            raise DecodeError(f"an output of {value_sat} sat at byte {pos}: not 0 to {MAX_MONEY_SAT}")
        size = raw[pos + 8]
        begin = pos + 9
        if size > _SHORT_SIZE:
            size, begin = _size(raw, begin - 1)
        # A script that is cut off is noticed later: no bytes are left for the lock time.
        pos = begin + size
        outputs.append(_new(TxOut, (value_sat, raw[begin:pos])))
        total_sat += value_sat
    if total_sat > MAX_MONEY_SAT:
        raise DecodeError(f"the outputs of one transaction sum to {total_sat} sat: above {MAX_MONEY_SAT}")
    return tuple(outputs), total_sat, pos


def _skip_witness(raw: bytes, pos: int, n_inputs: int) -> int:
    """Step over the witness stacks of n_inputs inputs; return the position after them.

    Raises DecodeError when all stacks are empty: such a transaction must be written without witness.
    """
    begin = pos
    for _ in range(n_inputs):
        count = raw[pos]
        pos += 1
        if count > _SHORT_SIZE:
            count, pos = _size(raw, pos - 1)
            if count > len(raw) - pos:
                raise DecodeError(
                    f"{count} witness items at byte {pos}: more than the remaining bytes can hold"
                )
        for _ in range(count):
            size = raw[pos]
            pos += 1
            if size > _SHORT_SIZE:
                size, pos = _size(raw, pos - 1)
            pos += size
    if pos == begin + n_inputs:
        raise DecodeError(f"empty witness at byte {begin}: the transaction must be written without it")
    return pos


def coinbase_stack(raw: bytes, pos: int) -> tuple[bytes, ...]:
    """Read the witness stack of a coinbase, which begins at pos; it is empty for position 0 (no witness)."""
    if not pos:
        return ()
    count, pos = _size(raw, pos)
    items = []
    for _ in range(count):
        size, pos = _size(raw, pos)
        items.append(raw[pos : pos + size])
        pos += size
    return tuple(items)


def _size(raw: bytes, pos: int) -> tuple[int, int]:
    """Read a compact size; return its value and the position after it."""
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


def _sha256d(data: bytes) -> bytes:
    return hashlib.sha256(hashlib.sha256(data).digest()).digest()
