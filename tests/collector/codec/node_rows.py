"""Make rows of `blocks` and `transactions` from a node's RPC answers."""

from typing import Any

from collector.codec.transaction import decode_transaction
from collector.dataset.schema import hash_bytes, satoshi
from tests.collector.codec.plain_traits import plain_traits


def expected_block(verbose: dict[str, Any], stats: dict[str, Any]) -> dict[str, Any]:
    """Make the row of a block from getblock and getblockstats, without the columns that are ours."""
    coinbase = verbose["tx"][0]
    return {
        "block_hash": hash_bytes(verbose["hash"]),
        "height": verbose["height"],
        "prev_hash": hash_bytes(verbose.get("previousblockhash", "00" * 32)),
        "version": verbose["version"],
        "merkle_root": hash_bytes(verbose["merkleroot"]),
        "header_time": verbose["time"],
        "bits": int(verbose["bits"], 16),
        "nonce": verbose["nonce"],
        "size_bytes": verbose["size"],
        "stripped_bytes": verbose["strippedsize"],
        "weight_wu": verbose["weight"],
        "n_tx": stats["txs"],
        "n_segwit_tx": stats["swtxs"],
        "n_inputs": stats["ins"],
        "n_outputs": stats["outs"],
        "output_value_sat": stats["total_out"],
        "fees_sat": stats["totalfee"],
        "subsidy_sat": stats["subsidy"],
        "coinbase_txid": hash_bytes(coinbase["txid"]),
        "coinbase_value_sat": sum(satoshi(output["value"]) for output in coinbase["vout"]),
        "coinbase_script": bytes.fromhex(coinbase["vin"][0]["coinbase"]),
        "coinbase_outputs": [
            {
                "value_sat": satoshi(output["value"]),
                "script": bytes.fromhex(output["scriptPubKey"]["hex"]),
            }
            for output in coinbase["vout"]
        ],
        "witness_commitment": commitment(coinbase),
        "coinbase_version": coinbase["version"],
        "coinbase_sequence": coinbase["vin"][0]["sequence"],
        "coinbase_locktime": coinbase["locktime"],
        "coinbase_reserved_value": reserved_value(coinbase),
    }


def commitment(coinbase: dict[str, Any]) -> bytes | None:
    """Return the witness commitment in the node's answer about a coinbase."""
    found = [output["scriptPubKey"]["hex"] for output in coinbase["vout"]]
    found = [script[12:76] for script in found if script.startswith("6a24aa21a9ed")]
    return bytes.fromhex(found[-1]) if found else None


def reserved_value(coinbase: dict[str, Any]) -> bytes | None:
    """Return the one item of the coinbase's witness."""
    items = coinbase["vin"][0].get("txinwitness", [])
    return bytes.fromhex(items[0]) if items else None


def expected_transaction(told: dict[str, Any], index: int, txids: list[str]) -> dict[str, Any]:
    """Make the row of a transaction from the node's answer about it."""
    spent = told["vin"]
    parents = {txids.index(one["txid"]) for one in spent if one.get("txid") in txids}
    values = [satoshi(one["prevout"]["value"]) for one in spent if index]
    return {
        **decoded_columns(told),
        "tx_index": index,
        "input_value_sat": sum(values) if index else None,
        "fee_sat": satoshi(told["fee"]) if index else None,
        "is_coinbase": index == 0,
        "has_witness": any("txinwitness" in one for one in spent),
        "signals_rbf": index > 0 and any(one["sequence"] < 0xFFFFFFFE for one in spent),
        "parents": sorted(parents),
        "spent_types": [one["prevout"]["scriptPubKey"]["type"] for one in spent] if index else None,
        **expected_traits(told, index),
    }


def decoded_columns(told: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a transaction that follow from its decoderawtransaction answer alone."""
    spent, made = told["vin"], told["vout"]
    return {
        "txid": hash_bytes(told["txid"]),
        "wtxid": hash_bytes(told["hash"]),
        "version": told["version"],
        "locktime": told["locktime"],
        "size_bytes": told["size"],
        "weight_wu": told["weight"],
        "vsize_vb": told["vsize"],
        "n_inputs": len(spent),
        "n_outputs": len(made),
        "output_value_sat": sum(satoshi(one["value"]) for one in made),
        "signals_rbf": any(one["sequence"] < 0xFFFFFFFE for one in spent),
        "output_types": [one["scriptPubKey"]["type"] for one in made],
    }


def expected_traits(told: dict[str, Any], index: int) -> dict[str, Any]:
    """Compute the traits from the scripts that the node prints, with python-bitcoinlib."""
    spent = [one["prevout"]["scriptPubKey"]["type"] for one in told["vin"] if index]
    return plain_traits(decode_transaction(bytes.fromhex(told["hex"])), spent or None)
