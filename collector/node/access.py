"""Find the RPC of a node from its bitcoin.conf, its datadir and its cookie file.

The rules are those of the node (Bitcoin Core, doc/bitcoin-conf.md). A setting before the first [section]
holds for every chain, but a network setting there holds for mainnet only. A [section] holds for its chain and
overrides the settings before it. Of two equal names in one place the first counts. The settings of included
files follow all settings of the file itself.
"""

import sys
from pathlib import Path
from typing import Final, NamedTuple

from collector.config import NodeSettings
from collector.errors import SettingsError
from collector.loopback import is_loopback

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
CHAIN_SWITCHES: Final = {"testnet": "test", "testnet4": "testnet4", "signet": "signet", "regtest": "regtest"}

Conf = dict[str, dict[str, list[str]]]  # section -> name -> values


class Access(NamedTuple):
    """Says how to reach a node's RPC: by a cookie file, or by the user and password of its bitcoin.conf."""

    rpc_url: str
    cookie_file: Path | None
    user: str | None
    password: str | None
    ca_file: Path | None = None  # certificates that check an https RPC

    def __repr__(self) -> str:
        return f"Access({self.rpc_url!r}, cookie_file={self.cookie_file!r})"


def default_datadir() -> Path:
    """Return the default datadir of a node; raise SettingsError for a user without a home folder."""
    try:
        home = Path.home()
    except RuntimeError:
        raise SettingsError("this user has no home folder; set datadir, or rpc_url and cookie_file") from None
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "Bitcoin"
    return home / ".bitcoin"


def find_access(node: NodeSettings, chain: str) -> Access:
    """Return the URL and the credentials of a node's RPC. Our settings override its bitcoin.conf.

    Raises SettingsError if a file that the settings name cannot be read, or if bitcoin.conf is for another
    chain.
    """
    if node.ca_file is not None and not node.ca_file.is_file():
        raise SettingsError(f"there is no file {node.ca_file}; set ca_file to certificates in PEM format")
    if node.rpc_url is not None and node.cookie_file is not None:
        return Access(node.rpc_url, node.cookie_file, None, None, node.ca_file)
    datadir = node.datadir or default_datadir()
    path = node.conf or datadir / CONF_NAME
    conf = read_conf(path, chain, datadir, must_exist=node.conf is not None)
    if node.rpc_url is None:
        _refuse_other_chain(conf, chain, path)
    if node.datadir is None and (named := _value(conf, chain, "datadir")):
        datadir = Path(named)
    chain_folder = datadir / SUBFOLDERS[chain]
    url = node.rpc_url or _rpc_url(conf, chain)
    user, password = _value(conf, chain, "rpcuser"), _value(conf, chain, "rpcpassword")
    if node.cookie_file is None and password:  # with an empty password the node writes a cookie
        return Access(url, None, user or "", password, node.ca_file)
    cookie = chain_folder / (_value(conf, chain, "rpccookiefile") or COOKIE_NAME)
    return Access(url, node.cookie_file or cookie, None, None, node.ca_file)


def read_conf(path: Path, chain: str, datadir: Path, *, must_exist: bool) -> Conf:
    """Return the settings of a bitcoin.conf and of the files it includes for `chain`.

    Names of included files are relative to the datadir. Included files cannot include others. A missing file
    is empty; with `must_exist` it raises SettingsError.
    """
    conf = _read(path, must_exist=must_exist)
    named = [name for section in (chain, "") for name in conf.get(section, {}).get("includeconf", [])]
    for name in named:
        for section, values in _read(datadir / name, must_exist=False).items():
            for key, more in values.items():
                conf.setdefault(section, {}).setdefault(key, []).extend(more)
    return conf


def _read(path: Path, *, must_exist: bool) -> Conf:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")  # a password may be any bytes
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(f"there is no file {path}; set conf to the node's bitcoin.conf") from None
        return {}
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}; set rpc_url and cookie_file") from None
    conf: Conf = {}
    section = ""
    for line in text.split("\n"):
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
    return conf


def _refuse_other_chain(conf: Conf, chain: str, path: Path) -> None:
    """Raise SettingsError if a bitcoin.conf chooses another chain than our settings do."""
    common = {name: values[0] for name, values in conf.get("", {}).items()}
    switched = [name for switch, name in CHAIN_SWITCHES.items() if common.get(switch, "0") != "0"]
    chosen = common.get("chain") or next(iter(switched), chain)
    if chosen != chain:
        raise SettingsError(
            f"the node of {path} is on {chosen!r}, the settings say {chain!r}; set chain, or datadir or "
            "rpc_url to those of another node"
        )


def _rpc_url(conf: Conf, chain: str) -> str:
    """Return the URL of the RPC: the host of rpcbind if bitcoin.conf has an rpcallowip, else loopback."""
    port = _value(conf, chain, "rpcport") or str(RPC_PORTS[chain])
    bound = _values(conf, chain, "rpcbind") if _values(conf, chain, "rpcallowip") else []
    addresses = [_host_and_port(each, port) for each in bound] or [("127.0.0.1", port)]
    host, port = next((address for address in addresses if is_loopback(address[0])), addresses[0])
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _host_and_port(address: str, port: str) -> tuple[str, str]:
    """Split a value of rpcbind into host and port; without a port in it, use `port`.

    A wildcard host becomes loopback, and an IPv6 address loses its brackets.
    """
    host, colon, own = address.rpartition(":")
    if not colon or address.endswith("]") or (":" in host and not host.endswith("]")):
        host, own = address, port  # no port after it
    host = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), own  # noqa: S104 - read, not bound


def _value(conf: Conf, chain: str, name: str) -> str | None:
    return next(iter(_values(conf, chain, name)), None)


def _values(conf: Conf, chain: str, name: str) -> list[str]:
    values = conf.get(chain, {}).get(name, [])
    if chain == "main" or name not in NETWORK_ONLY:
        values = [*values, *conf.get("", {}).get(name, [])]
    return values
