"""Decide at which address the web server listens: on loopback, unless the user sets another and a token."""

import os
import socket
from pathlib import Path
from typing import Final

from analysis.errors import ServeError
from collector.loopback import is_loopback

DEFAULT_ADDRESS: Final = "127.0.0.1:9744"
TOKEN_VARIABLE: Final = "POOL_ANALYSIS_TOKEN"  # noqa: S105 - the name of a variable, no secret
MIN_TOKEN_LENGTH: Final = 16
MAX_WAITING: Final = 1024  # connections that wait in the kernel to be accepted; they cost us no descriptor


def read_token(file: Path | None) -> str:
    """Return the token from a file, else from POOL_ANALYSIS_TOKEN, else an empty text.

    Raises ServeError if the file cannot be read, or if the token is shorter than 16 characters.
    """
    try:
        token = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ServeError(f"the token file {file} cannot be read: {error}") from None
    token = token.strip()
    if (token or file is not None) and len(token) < MIN_TOKEN_LENGTH:
        raise ServeError(
            f"the token has {len(token)} characters; use at least {MIN_TOKEN_LENGTH}, for example from"
            " `openssl rand -hex 16`"
        )
    return token


def bound(address: str, *, allow_remote: bool, token: str) -> socket.socket:
    """Return a socket that listens at `address` (HOST:PORT).

    Raises ServeError for an address that other machines can reach where that is not allowed, and for a port
    that cannot be used.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal():
        raise ServeError(f"{address} is no address; write HOST:PORT, for example {DEFAULT_ADDRESS}")
    if not is_loopback(host) and not (allow_remote and token):
        lacking = [] if allow_remote else ["give --allow-remote"]
        lacking += [] if token else [f"set a token in {TOKEN_VARIABLE} or --token-file"]
        raise ServeError(
            f"{address} can be reached from other machines; write 127.0.0.1:{port}, or"
            f" {' and '.join(lacking)}"
        )
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(port)), family=family, backlog=MAX_WAITING)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ServeError(f"cannot listen on {address}: {reason}; choose another --address") from None
