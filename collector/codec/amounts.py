"""Convert amounts of bitcoin between the units that the node and the dataset use."""

from decimal import Decimal


def satoshi(amount: Decimal | int) -> int:
    """Convert an amount in BTC, as RPC gives it, to satoshi; raise ValueError if that is not whole."""
    scaled = Decimal(amount).scaleb(8)
    value = int(scaled)
    if value != scaled:
        raise ValueError(f"{amount} BTC is not a whole number of satoshi")
    return value
