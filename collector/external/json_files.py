"""Read the JSON files of publishers: daily prices of brk, and blocks of the API of mempool.space."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from collector.errors import DecodeError
from collector.external import fields
from collector.external.kinds import Values, row_of

DAY_S: Final = 86_400
# bitcoinresearchkit/brk: index 0 is 2009-01-03, index i from 1 on is 2009-01-08 + i days.
OHLC_FIRST_S: Final = fields.FIRST_DAY_S
OHLC_SECOND_S: Final = OHLC_FIRST_S + 5 * DAY_S
# Our column, and where mempool.space's /api/v1/blocks has it; the second group stands inside `extras`.
MEMPOOL_SPACE: Final = {
    "block_hash": "id",
    "height": "height",
    "header_time": "timestamp",
    "version": "version",
    "merkle_root": "merkle_root",
    "bits": "bits",
    "nonce": "nonce",
    "size_bytes": "size",
    "weight_wu": "weight",
    "n_tx": "tx_count",
}
MEMPOOL_SPACE_EXTRAS: Final = {
    "fees_sat": "totalFees",
    "coinbase_script": "coinbaseRaw",
    "n_segwit_tx": "segwitTotalTxs",
    "n_inputs": "totalInputs",
    "n_outputs": "totalOutputs",
}


def rows_from_json(kind: str, path: Path) -> Iterator[Values]:
    """Yield the rows of a JSON file of prices or blocks; DecodeError for another kind or no JSON."""
    readers = {"prices": _days, "blocks": _blocks}
    if kind not in readers:
        raise DecodeError(f"{path}: JSON is read for {' and '.join(readers)} only; convert it to CSV")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # also for a number of thousands of digits
        raise DecodeError(f"{path} is no JSON: {error}") from None
    if not isinstance(content, list):
        raise DecodeError(
            f"{path} is no list of {'[open, high, low, close] by day' if kind == 'prices' else 'blocks'}"
        )
    yield from readers[kind](path, content)


def _days(path: Path, days: list[Any]) -> Iterator[Values]:
    """Yield a row of prices per day from a list of [open, high, low, close]; days of zeros are left out."""
    for index, prices in enumerate(days):
        if not isinstance(prices, list) or len(prices) != 4:  # noqa: PLR2004 - open, high, low, close
            raise DecodeError(f"{path}, day {index}: {prices!r:.60} is not [open, high, low, close]")
        if any(prices):
            texts = dict(zip(("open", "high", "low", "close"), map(str, prices), strict=True))
            row = row_of(f"{path}, day {index}", texts, "prices")
            day_s = OHLC_FIRST_S if index == 0 else OHLC_SECOND_S + index * DAY_S
            try:
                fields.check_time(day_s)
            except ValueError as error:
                raise DecodeError(f"{path}, day {index}: {error}") from None
            yield row | {"day_at": day_s}


def _blocks(path: Path, blocks: list[Any]) -> Iterator[Values]:
    """Yield a row per block of an answer of mempool.space's API; blocks that it calls stale are left out."""
    for number, block in enumerate(blocks, start=1):
        where = f"{path}, block {number}"
        extras = block.get("extras", {}) if isinstance(block, dict) else None
        if not isinstance(extras, dict):
            raise DecodeError(f"{where}: {block!r:.60} is no block as mempool.space describes it")
        if block.get("stale"):
            continue
        missing = [name for name in MEMPOOL_SPACE.values() if not isinstance(block.get(name), str | int)]
        if missing:
            raise DecodeError(f"{where} has no {', '.join(missing)}; is it an answer of /api/v1/blocks?")
        texts = {ours: str(block[theirs]) for ours, theirs in MEMPOOL_SPACE.items()}
        texts |= {ours: _text(extras.get(theirs)) for ours, theirs in MEMPOOL_SPACE_EXTRAS.items()}
        pool = extras.get("pool")
        texts["pool_label"] = _text(pool.get("name")) if isinstance(pool, dict) else ""
        yield row_of(where, texts | _derived(block, extras), "blocks")


def _derived(block: Mapping[str, Any], extras: Mapping[str, Any]) -> dict[str, str]:
    """Return, as texts, subsidy (from reward and fees) and stripped size (from size and weight) of a block.

    The weight of a block is three times its stripped size plus its size (BIP 141). A text is empty where the
    facts are missing.
    """
    reward, fees = extras.get("reward"), extras.get("totalFees")
    size, weight = block["size"], block["weight"]
    subsidy_sat = reward - fees if isinstance(reward, int) and isinstance(fees, int) and fees >= 0 else -1
    is_whole = isinstance(size, int) and isinstance(weight, int) and (weight - size) % 3 == 0
    return {
        "subsidy_sat": str(subsidy_sat) if subsidy_sat >= 0 else "",
        "stripped_bytes": str((weight - size) // 3) if is_whole else "",
    }


def _text(value: object) -> str:
    """Return a JSON value as text; null and what is neither a text nor a whole number are empty."""
    return str(value) if isinstance(value, str | int) else ""
