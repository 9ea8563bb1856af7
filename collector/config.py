"""Read the settings of `pool-collector run` from flags, environment variables and a TOML file, in this order.

No setting is a secret: the credentials of the RPC are in the node's cookie file or in its bitcoin.conf.
"""

import difflib
import ipaddress
import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import SettingsError as UnreadableVariable

from collector.errors import SettingsError
from collector.loopback import is_loopback

PREFIX: Final = "POOL_COLLECTOR_"
NAME_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,31}$"  # a node's name is the name of a folder
TCP_ENDPOINT: Final = re.compile(r"tcp://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
MOST_PORT: Final = 65535
MOST_FILE_BYTES: Final = 1 << 20  # of a settings file
LONGEST_S: Final = 86_400.0  # longest interval: a day
MOST_DAYS: Final = 100_000
MOST_QUEUED: Final = 100_000_000


def _named(name: str) -> str:
    if not re.fullmatch(NAME_PATTERN, name):
        raise ValueError(
            f"{name!r} cannot be the name of a folder; write up to 32 characters of a-z, 0-9, _ and -, "
            "the first a letter or digit"
        )
    return name


def _path(value: object) -> Path:
    if not isinstance(value, str | Path) or str(value) == "" or "\0" in str(value):
        raise ValueError(f"{value!r} is not a path; write it in quotes")
    if any("\udc80" <= char <= "\udcff" for char in str(value)):  # bytes that Python could not decode
        raise ValueError(
            f"{str(value)!r} is not UTF-8, so the dataset cannot record it; rename the file or folder"
        )
    try:
        return Path(value).expanduser()
    except RuntimeError:
        raise ValueError(f"there is no home folder for {str(value)!r}; write the full path") from None


def _as_tables(value: object) -> object:
    if not isinstance(value, list | tuple) or not all(
        isinstance(each, dict | NodeSettings) for each in value
    ):
        raise ValueError(
            "this must be a list of tables, one per node; in TOML each table begins with [[node]]"
        )
    return value


# A path from any source: flag, environment variable or file.
SomePath = Annotated[Path, BeforeValidator(_path)]


class NodeSettings(BaseModel):
    """Holds the settings of one node to record. The defaults fit the node of this user on this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(_named)] = Field(
        default="node", description="Name of the node in the dataset."
    )
    rpc_url: str | None = Field(
        default=None, description="Address of its RPC; default: from its bitcoin.conf."
    )
    cookie_file: SomePath | None = Field(
        default=None, description="Its cookie file; default: in its datadir."
    )
    datadir: SomePath | None = Field(default=None, description="Its datadir; default: ~/.bitcoin.")
    conf: SomePath | None = Field(default=None, description="Its bitcoin.conf; default: in its datadir.")
    zmq: dict[Literal["sequence", "rawtx", "rawblock"], str] = Field(
        default_factory=dict, description="Address per ZMQ topic, if it differs from what the node reports."
    )
    ca_file: SomePath | None = Field(
        default=None, description="PEM certificates that check an https RPC; default: the usual authorities."
    )
    rpc_timeout_s: float = Field(
        default=30.0, gt=0, le=LONGEST_S, description="Longest wait for one complete RPC answer."
    )
    allow_remote_rpc: bool = Field(
        default=False, description="Allow credentials to be sent to another machine without TLS."
    )

    @field_validator("zmq")
    @classmethod
    def _endpoints(cls, addresses: dict[str, str]) -> dict[str, str]:
        for address in addresses.values():
            tcp = TCP_ENDPOINT.fullmatch(address)
            if not (tcp and _is_port(tcp[1])) and not re.fullmatch(r"ipc://.+", address):
                raise ValueError(f"{address!r} is not a ZMQ address; write tcp://127.0.0.1:28332")
        return addresses


class Settings(BaseSettings):
    """Holds all settings of `pool-collector run`."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="forbid", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    chain: Literal["main", "test", "testnet4", "signet", "regtest"] = Field(
        default="main", description="Chain of every node."
    )
    dataset: SomePath = Field(default=Path("data/dataset"), description="Folder of the dataset.")
    store: str | None = Field(
        default=None,
        description="s3://bucket/prefix that gets every sealed file; `dataset` is then its local part.",
    )
    node: Annotated[tuple[NodeSettings, ...], BeforeValidator(_as_tables)] = Field(
        default=(NodeSettings(),), min_length=1, description="The nodes to record, each a [[node]] table."
    )
    startup_patience_s: float = Field(
        default=10.0,
        ge=0,
        le=LONGEST_S,
        description="How long to wait at the start for a node that does not answer.",
    )
    seal_interval_s: float = Field(
        default=300.0, gt=0, le=LONGEST_S, description="How often Parquet files are written."
    )
    fsync_interval_s: float = Field(
        default=1.0,
        ge=0,
        le=LONGEST_S,
        description="How much of the journal a power cut may lose; 0 waits for the disk each time.",
    )
    fee_batch: int = Field(
        default=2000, ge=1, le=MOST_QUEUED, description="Most mempool entries in one request."
    )
    fee_interval_s: float = Field(
        default=0.2, ge=0, le=LONGEST_S, description="Shortest time between two such requests."
    )
    template_interval_s: float = Field(
        default=30.0,
        gt=0,
        le=LONGEST_S,
        description="How often a block template is taken, in addition to each new tip.",
    )
    stats_interval_s: float = Field(
        default=60.0, gt=0, le=LONGEST_S, description="How often mempool statistics are taken."
    )
    chain_tips_interval_s: float = Field(
        default=60.0,
        gt=0,
        le=LONGEST_S,
        description="How often the tips of all known branches are taken, in addition to each new tip.",
    )
    keep_bodies: Literal["lost", "all", "none"] = Field(
        default="lost",
        description="Whose raw bytes are kept: of transactions that left unconfirmed, of all, or of none.",
    )
    keep_bodies_days: int | None = Field(
        default=None,
        ge=1,
        le=MOST_DAYS,
        description="Remove raw bytes that are older, unless the clock seems wrong; default: keep them.",
    )
    watchdog_interval_s: float = Field(
        default=15.0,
        gt=0,
        le=LONGEST_S,
        description="How often the state of the node is compared with its messages.",
    )
    clock_step_s: float = Field(
        default=0.5,
        gt=0,
        le=LONGEST_S,
        description="A step of the wall clock this large ends the coverage intervals.",
    )
    queue_limit: int = Field(
        default=200_000,
        ge=1000,
        le=MOST_QUEUED,
        description="Most messages that wait in the ring; more are dropped and recorded as a loss.",
    )
    allow_remote_metrics: bool = Field(
        default=False, description="Allow `metrics` to be an address that other machines can reach."
    )
    metrics: str | None = Field(
        default=None,
        description="Address that serves /metrics, /healthz, /readyz and /events, e.g. 127.0.0.1:9733.",
    )
    log_format: Literal["auto", "console", "json"] = Field(
        default="auto", description="`auto` means console in a terminal and JSON elsewhere."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest severity that is logged."
    )

    @field_validator("metrics")
    @classmethod
    def _on_loopback(cls, address: str | None, info: ValidationInfo) -> str | None:
        if address is None:
            return None
        host, _, port = address.rpartition(":")
        if not _is_ip_address(host.strip("[]")):
            port = ""
        if not _is_port(port):
            raise ValueError(
                f"{address!r} is not <loopback address>:<port up to {MOST_PORT}>; write 127.0.0.1:9733"
            )
        if not is_loopback(host.strip("[]")) and not info.data.get("allow_remote_metrics"):
            raise ValueError(
                f"{address!r} is not a loopback address, so other machines could read it; "
                f"write 127.0.0.1:{port}, or set allow_remote_metrics = true"
            )
        return address

    @model_validator(mode="after")
    def _distinct_nodes(self) -> Self:
        names = [node.name for node in self.node]
        if len(set(names)) != len(names):
            raise ValueError("two nodes have the same name; give each [[node]] its own name")
        return self


def load_settings(file: Path | None = None, **flags: Any) -> Settings:
    """Return the settings from all sources; raise SettingsError with the source and the key of a fault.

    Flags that are None were not given. The flags `rpc_url`, `cookie_file`, `datadir` and `conf` set
    values of the only node.
    """
    content = _read(file) if file is not None else {}
    given = {name: value for name, value in flags.items() if value is not None}
    node_flags = {name: given.pop(name) for name in list(given) if name in NodeSettings.model_fields}
    _refuse_unknown_variables()
    try:
        settings = _from_sources(file, given)
        if node_flags:
            settings = _with_node(settings, node_flags)
    except UnreadableVariable:  # only `node` is read as JSON
        raise SettingsError(
            f"environment variable {PREFIX}NODE is not JSON; write it as "
            '[{"rpc_url": "http://127.0.0.1:8332"}], or use --config'
        ) from None
    except ValidationError as error:
        raise SettingsError(_explain(error, file, content, given | node_flags)) from None
    return settings


def _from_sources(file: Path | None, given: dict[str, Any]) -> Settings:
    class FromSources(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            toml = (TomlConfigSettingsSource(settings_cls, file),) if file is not None else ()
            return init_settings, env_settings, *toml

    return FromSources(**given)


def _with_node(settings: Settings, flags: dict[str, Any]) -> Settings:
    if len(settings.node) > 1:
        names = ", ".join(node.name for node in settings.node)
        raise SettingsError(
            f"{', '.join(flags)} given, but there are several nodes ({names}); set it in the settings file"
        )
    values = settings.node[0].model_dump(exclude_unset=True) | flags
    return settings.model_copy(update={"node": (NodeSettings(**values),)})


def _read(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_FILE_BYTES + 1)
        if len(text) > MOST_FILE_BYTES:
            raise SettingsError(f"{file} has more than {MOST_FILE_BYTES:,} bytes: it is no settings file")
        return tomllib.loads(text.decode())
    except FileNotFoundError:
        raise SettingsError(f"there is no settings file {file}") from None
    except OSError as error:
        raise SettingsError(
            f"cannot read the settings file {file}: {error.strerror}; name a TOML file that you may read"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} is not TOML: {error}") from None


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 1 <= int(text) <= MOST_PORT


def _refuse_unknown_variables() -> None:
    valid = {(PREFIX + name).upper() for name in Settings.model_fields}
    unknown = sorted(
        name for name in os.environ if name.upper().startswith(PREFIX) and name.upper() not in valid
    )
    if unknown:
        nearest = _nearest(unknown[0].upper(), valid)
        raise SettingsError(f"unknown setting in the environment: {', '.join(unknown)}{nearest}")


def _nearest(name: str, valid: Iterable[str]) -> str:
    """Return the end of an error: `; did you mean X?` with a name of `valid`, or where all are listed."""
    close = difflib.get_close_matches(name, list(valid), n=1)
    return f"; did you mean {close[0]}?" if close else "; collector/README.md lists all settings"


def _explain(
    error: ValidationError, file: Path | None, content: dict[str, Any], given: dict[str, Any]
) -> str:
    """Return a text with the source, the key and the fault of the first invalid setting."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(part) for part in first["loc"]]
    key = ".".join(path) or "the settings"
    top = path[0] if path else ""
    if top in given:
        where = "command line"
    elif (PREFIX + top).upper() in {name.upper() for name in os.environ}:
        where = f"environment variable {(PREFIX + top).upper()}"
    elif top in content and file is not None:
        where = str(file)
    else:
        where = str(file or "settings")
    if first["type"] == "extra_forbidden":
        here, elsewhere, place = (
            (NodeSettings, Settings, "before the first [[node]]")
            if top == "node"
            else (Settings, NodeSettings, "below a [[node]]")
        )
        if path[-1] in elsewhere.model_fields:
            return f"{where}: {key} does not belong here; write {path[-1]} {place}"
        return f"{where}: unknown setting {key}{_nearest(path[-1], here.model_fields)}"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {key}: {message[:1].lower()}{message[1:]}"
