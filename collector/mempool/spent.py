"""Find what an entering transaction spends: value and type of each output, and the cost of its signatures.

Parents in the mempool tell it of their outputs. Of confirmed outputs the node is asked (gettxout), in the
same request as the mempool entry, while few transactions wait. In a burst the questions would take more time
than everything else, so they are left out, and the columns stay null. No block tells of a transaction that is
never mined; `transactions` has the columns of every other.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import structlog

from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.traits import sigop_costs
from collector.codec.transaction import Transaction, read_outpoint
from collector.dataset.rows import MempoolTxRow
from collector.dataset.schema import OUTPUT_TYPES, satoshi
from collector.errors import NodeError, RpcError
from collector.node.answers import Fields

TYPE_NUMBERS: Final = {name: number for number, name in enumerate(OUTPUT_TYPES)}
log = structlog.get_logger(__name__)


class OutputRequest(NamedTuple):
    """Asks the node by gettxout for output number `output` of `txid`, which `spender` spends."""

    spender: bytes
    txid: bytes
    output: int


class SpentOutput(NamedTuple):
    """Holds value and type of an output; the type is a position in OUTPUT_TYPES, or UNKNOWN_TYPE."""

    value_sat: int
    type_number: int


Outputs = Mapping[tuple[bytes, int], SpentOutput]  # by txid and index
OutputFinder = Callable[[bytes, int], SpentOutput | None]  # takes txid and index


def type_numbers(body: Transaction) -> bytes:
    """Return the type of each output of a transaction, one byte each.

    The types of a transaction that was decoded as a part of its block are unknown.
    """
    if body.traits is None:
        return bytes([UNKNOWN_TYPE]) * body.n_outputs
    return bytes([TYPE_NUMBERS[name] for name in body.traits["output_types"]])


def outputs_of_answers(
    requests: Sequence[OutputRequest], answers: Sequence[Any]
) -> dict[tuple[bytes, int], SpentOutput]:
    """Return the outputs that gettxout found, keyed by txid and index.

    `answers` are in the order of `requests`. One of a wrong form counts as not found.
    """
    found = {}
    for request, answer in zip(requests, answers, strict=True):
        if answer is None or isinstance(answer, RpcError):
            continue
        try:
            found[request.txid, request.output] = _read_output(Fields("gettxout", answer))
        except NodeError as error:
            log.warning("output.unread", reason=str(error))
    return found


def _read_output(answer: Fields) -> SpentOutput:
    """Return the output in an answer to gettxout; raise NodeError for a wrong form.

    A type that we do not know counts as unknown.
    """
    type_ = answer.fields("scriptPubKey").get("type")
    number = TYPE_NUMBERS.get(type_, UNKNOWN_TYPE) if isinstance(type_, str) else UNKNOWN_TYPE
    return SpentOutput(satoshi(answer.amount("value")), number)


def spent_type_numbers(body: Transaction, find: OutputFinder) -> bytes | None:
    """Return the type of the output that each input of a transaction spends, one byte each.

    The result is None if one of the types is not known.
    """
    numbers = bytearray()
    for outpoint in body.outpoints:
        output = find(*read_outpoint(outpoint))
        if output is None or output.type_number == UNKNOWN_TYPE:
            return None
        numbers.append(output.type_number)
    return bytes(numbers)


def fill_spent(rows: Sequence[tuple[MempoolTxRow, Transaction, bytes]]) -> None:
    """Write types of spent outputs and the sigop cost into rows, given each body and its types.

    All costs are computed in one call: one by one, the calls take most of the time.
    """
    if not rows:
        return
    raws = [body.source[body.begin : body.begin + body.size_bytes] for _, body, _ in rows]
    types = np.frombuffer(b"".join(numbers for _, _, numbers in rows), np.uint8)
    for (row, _, numbers), cost in zip(rows, sigop_costs(raws, types).tolist(), strict=True):
        row["spent_types"] = [OUTPUT_TYPES[number] for number in numbers]
        row["sigop_cost"] = cost
