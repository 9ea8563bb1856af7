"""Read lists of public data sets: what each one is, where its files lie, and how they are checked.

The list of this project is `data_sets.toml`. A list of your own has the same form.
"""

import datetime as dt
import re
import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from collector.errors import SettingsError
from collector.external.kinds import KINDS
from collector.external.providers import PROVIDERS
from collector.loopback import is_loopback

MIB: Final = 1 << 20
MOST_LIST_BYTES: Final = MIB
MOST_DAYS: Final = 10_000  # of one call; more than the chain has
FILES: Final = "files"  # the kind of what is only downloaded, for another command to read
DAY: Final = "{day}"  # in an address: the day as YYYYMMDD
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,40}$")]
Hex40 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class RemoteFile(BaseModel):
    """Describes one file on a server, and what is known of its content before it is downloaded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(description="Address of the file, with https.")
    name: str = Field("", description="Name in the cache; by default the end of the address.")
    source: str = Field("", description="Who says so, if the files of a data set differ in that.")
    size_bytes: int | None = Field(None, ge=1, description="Its exact size.")
    max_bytes: int = Field(64 * MIB, ge=1, description="A larger file is refused.")
    sha256: Hex64 | None = Field(None, description="SHA-256 of the file.")
    git_blob: Hex40 | None = Field(
        None, description="The file's object id in the publisher's git repository."
    )
    sums_url: str = Field("", description="Address of a file of SHA-256 sums that the publisher keeps.")
    member: str = Field("", description="In a .tar.gz: the end of the path of the file that is wanted.")

    @model_validator(mode="after")
    def _checked(self) -> Self:
        for url in filter(None, (self.url, self.sums_url)):
            check_url(url)
        if not _NAME.fullmatch(self.file_name):
            raise ValueError(f"{self.file_name!r} cannot be the name of a file; give the file a `name`")
        if self.file_name.endswith((".tar.gz", ".tgz")) != bool(self.member):
            raise ValueError("`member` names a file in a .tar.gz, and a .tar.gz needs it")
        return self

    @property
    def file_name(self) -> str:
        """Return the name that the downloaded file has in the cache."""
        return self.name or re.sub(
            r"[^A-Za-z0-9._-]", "_", unquote(urlsplit(self.url).path).rpartition("/")[2]
        )

    @property
    def is_pinned(self) -> bool:
        """Return whether the list of data sets fixes the content of the file by a digest."""
        return self.sha256 is not None or self.git_blob is not None


class DataSet(BaseModel):
    """Describes one public data set: what it holds, who publishes it, under which licence, and its files."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    what: Words = Field(description="What the data set holds.")
    publisher: Words
    homepage: Words
    licence: Words
    provider: str = Field(
        "", alias="from", description="Publisher, as `pool-collector import --from` names it."
    )
    kind: str = Field("", description="What its files hold, as `pool-collector import` takes it, or `files`.")
    source: Name | None = Field(None, description="Short name of who says so; `from` sets it.")
    feeds: Words = Field(description="The results for which it is used.")
    size: Words = Field(description="About how much is downloaded.")
    history: bool = Field(default=False, description="Whether `make history` takes it.")
    currency: str = "USD"
    first_day: dt.date | None = Field(None, description="The first day that an address with {day} has.")
    last_days: int = Field(30, ge=1, le=MOST_DAYS, description="How many days are taken by default.")
    pause_s: float = Field(
        0.0, ge=0, le=60, description="Pause between two files, for servers that ask for it."
    )
    note: str = ""
    checked: dt.date | None = Field(None, description="When its content was last compared with the list.")
    file: tuple[RemoteFile, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _checked_kind(self) -> Self:
        if self.provider and self.provider not in PROVIDERS:
            raise ValueError(f"from {self.provider!r} is none of {', '.join(PROVIDERS)}")
        if self.kind not in (*KINDS, FILES) and not (self.provider and not self.kind):
            raise ValueError(f"kind {self.kind!r} is none of {', '.join((*KINDS, FILES))}")
        if not (self.provider or self.source or self.kind == FILES):
            raise ValueError("`source` is missing: a short name of who says so")
        if self.is_daily and self.first_day is None:
            raise ValueError("an address with {day} needs `first_day`")
        return self

    @property
    def is_daily(self) -> bool:
        """Return whether the data set has a file for each day."""
        return any(DAY in file.url for file in self.file)

    def files_of(self, days: Sequence[dt.date]) -> Iterator[RemoteFile]:
        """Yield the files to download; a file with `{day}` in its address is one file for each of `days`."""
        for file in self.file:
            if DAY not in file.url:
                yield file
                continue
            for day in days:
                yield file.model_copy(update={"url": file.url.replace(DAY, f"{day:%Y%m%d}")})

    def days(self, first: dt.date | None, last: dt.date | None) -> list[dt.date]:
        """Return the days from `first` to `last`; by default the last complete ones in UTC.

        The list is empty for a data set without a file per day. Raises SettingsError for too many days.
        """
        if not self.is_daily or self.first_day is None:
            return []
        end = last or dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)
        begin = max(self.first_day, first or end - dt.timedelta(days=self.last_days - 1))
        n_days = (end - begin).days + 1
        if n_days > MOST_DAYS:
            raise SettingsError(f"{self.name}: {n_days:,} days are more than {MOST_DAYS:,}; take fewer")
        return [begin + dt.timedelta(days=i) for i in range(n_days)]


def check_url(url: str) -> None:
    """Raise ValueError unless `url` is https, or http to this machine, and holds no user or password."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("an address must not hold a user or a password")
    if not parts.hostname or parts.scheme not in {"https", "http"}:
        raise ValueError(f"{url!r} is no address that begins with https://")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(f"{url} is not encrypted, so anybody on the way could change the data; use https")


def load_lists(paths: Sequence[Path]) -> dict[str, DataSet]:
    """Map the name of each data set in these lists to the data set; without a list, in the project's own.

    Raises SettingsError for a file that cannot be read, a wrong entry, or a name that stands twice.
    """
    found: dict[str, DataSet] = {}
    texts = [(str(path), _text(path)) for path in paths]
    for where, text in texts or [("data_sets.toml", _own_list())]:
        for data_set in _parsed(where, text):
            if data_set.name in found:
                raise SettingsError(f"{where}: {data_set.name} stands twice; give each data set its own name")
            found[data_set.name] = data_set
    return found


def _own_list() -> str:
    return (files("collector.fetch") / "data_sets.toml").read_text(encoding="utf-8")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as opened:
            text = opened.read(MOST_LIST_BYTES + 1)
        if len(text) > MOST_LIST_BYTES:
            raise SettingsError(f"{path} has more than {MOST_LIST_BYTES:,} bytes: it is no list of data sets")
        return text.decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise SettingsError(f"cannot read the list {path}: {reason}") from None


def _parsed(where: str, text: str) -> list[DataSet]:
    try:
        content: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{where} is no TOML: {error}") from None
    unknown = sorted(set(content) - {"data_set"})
    rows = content.get("data_set")
    if unknown or not isinstance(rows, list) or not rows:
        raise SettingsError(f"{where} must hold tables [[data_set]] and nothing else")
    sets = []
    for number, row in enumerate(rows, start=1):
        try:
            sets.append(DataSet.model_validate(row))
        except ValidationError as error:
            named = row.get("name", number) if isinstance(row, dict) else number
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            fault = first["msg"].removeprefix("Value error, ")
            said = ": ".join(filter(None, (where, f"data set {named}", at, fault)))
            raise SettingsError(said) from None
    return sets


Form = Literal["plain", "gz", "tar"]


def packing_of(file: RemoteFile) -> Form:
    """Return how a file of the list is packed, by its entry and its name: `tar`, `gz` or `plain`."""
    if file.member:
        return "tar"
    return "gz" if file.file_name.endswith(".gz") else "plain"
