"""Find a node's RPC by itself: its bitcoin.conf, its datadir and its cookie file.

Follows the node's own rules (Bitcoin Core, doc/bitcoin-conf.md): settings before the first [section] hold for
every chain, except those of the network, which then hold for mainnet alone; a [section] holds for its chain;
the section goes before the rest, and in either the first value counts.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple

from collector.config import NodeSettings
from collector.errors import SettingsError

CONF_NAME: Final = "bitcoin.conf"
COOKIE_NAME: Final = ".cookie"
SUBFOLDERS: Final = {
    "main": "",
    "test": "testnet3",
    "testnet4": "testnet4",
    "signet": "signet",
    "regtest": "regtest",
}
RPC_PORTS: Final = {"main": 8332, "test": 18332, "testnet4": 48332, "signet": 38332, "regtest": 18443}
NETWORK_ONLY: Final = ("rpcport", "rpcbind", "port", "bind")
INCLUDE_DEPTH: Final = 1  # an included file cannot include another

Conf = dict[str, dict[str, list[str]]]  # section -> name -> values


class Access(NamedTuple):
    """How to reach a node's RPC: with a cookie file, or with the user and password of its bitcoin.conf."""

    rpc_url: str
    cookie_file: Path | None
    user: str | None
    password: str | None

    def __repr__(self) -> str:
        return f"Access({self.rpc_url!r}, cookie_file={self.cookie_file!r})"


def default_datadir() -> Path:
    """Return where the node keeps its data unless told otherwise."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "Bitcoin"
    return Path.home() / ".bitcoin"


def find_access(node: NodeSettings, chain: str) -> Access:
    """Return how to reach a node's RPC. The settings go before what its bitcoin.conf says.

    Raises SettingsError for a file that is named and cannot be read.
    """
    datadir = node.datadir or default_datadir()
    conf = read_conf(node.conf or datadir / CONF_NAME, must_exist=node.conf is not None)
    if node.datadir is None and (named := _value(conf, chain, "datadir")):
        datadir = Path(named).expanduser()
    chain_folder = datadir / SUBFOLDERS[chain]
    url = node.rpc_url or f"http://127.0.0.1:{_value(conf, chain, 'rpcport') or RPC_PORTS[chain]}"
    user, password = _value(conf, chain, "rpcuser"), _value(conf, chain, "rpcpassword")
    if node.cookie_file is None and password is not None:
        return Access(url, None, user or "", password)
    cookie = node.cookie_file or Path(_value(conf, chain, "rpccookiefile") or COOKIE_NAME).expanduser()
    return Access(url, cookie if node.cookie_file else chain_folder / cookie, None, None)


def read_conf(path: Path, *, must_exist: bool, depth: int = 0) -> Conf:
    """Read a bitcoin.conf and what it includes; empty when there is none and none is demanded."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"there is no file {path}; set conf to the node's bitcoin.conf") from None
        return {}
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}; set rpc_url and cookie_file") from None
    conf: Conf = {}
    section = ""
    for line in text.splitlines():
        content = line.partition("#")[0].strip()
        if content.startswith("[") and content.endswith("]"):
            section = content[1:-1].strip()
            continue
        name, equals, value = (part.strip() for part in content.partition("="))
        where, dot, short = name.partition(".")  # `regtest.rpcport=1` is the same as a section
        if not equals:
            continue
        target, name = (where, short) if dot and where in SUBFOLDERS else (section, name)
        conf.setdefault(target, {}).setdefault(name.removeprefix("-"), []).append(value)
        if name == "includeconf" and depth < INCLUDE_DEPTH:
            included = read_conf(path.parent / value, must_exist=False, depth=depth + 1)
            for part, values in included.items():
                for key, more in values.items():
                    conf.setdefault(part, {}).setdefault(key, []).extend(more)
    return conf


def _value(conf: Conf, chain: str, name: str) -> str | None:
    values = conf.get(chain, {}).get(name, [])
    if chain == "main" or name not in NETWORK_ONLY:
        values = [*values, *conf.get("", {}).get(name, [])]
    return values[0] if values else None
