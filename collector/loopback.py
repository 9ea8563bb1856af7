"""Decide which host names stand for this machine."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Return whether `host` is `localhost` or a loopback address. No other name is resolved."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
