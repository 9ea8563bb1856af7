"""List the publishers whose files can be imported by one word, and read their files.

`PROVIDERS` says, for each word after `--from`, which forms of file the publisher has, what each one holds,
under which licence and at which address it is given. `read_files` finds the form of each file by its
beginning, and reads it.
"""

import functools
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from collector.errors import DecodeError, WrongUsage
from collector.external.header_files import read_headers, read_stale_blocks
from collector.external.imported_rows import ImportFile, Origin, read_import
from collector.external.kinds import Values
from collector.external.paper_files import read_block_sizes, read_hashrates
from collector.external.readers import MAX_FILE_BYTES, check_size, open_text

BEGINNING_CHARACTERS: Final = 4096
SPREADSHEET: Final = "PK\x03\x04"  # a zip archive begins so


class ChainReader(Protocol):
    """Is a function that turns a publisher's file of a special form into rows.

    `chain` gives the rules for headers.
    """

    def __call__(self, path: Path, /, chain: str) -> Iterable[Values]:
        """Return the rows of a publisher's file; raise DecodeError if the file has another form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileForm:
    """Describes one form of file: what it holds (`kind`), and how its `beginning` identifies it.

    With `source_per_file` each file is a source of its own, because each was made on another clock. `read` is
    the function for a file that is no table with a line of names.
    """

    kind: str
    about: str
    licence: str
    url: str
    beginning: re.Pattern[str]
    source_per_file: bool = False
    currency: str = "USD"
    read: ChainReader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Describes a publisher: the word after `--from`, who it is, and the forms of its files."""

    name: str
    about: str
    forms: tuple[FileForm, ...]


ARRIVAL_LINE: Final = re.compile(r"\d+,[0-9a-f]{64},\d{12,14}\s")

PROVIDERS: Final = {
    provider.name: provider
    for provider in (
        Provider(
            name="blockchair",
            about="Blockchair, daily dumps of blocks",
            forms=(
                FileForm(
                    kind="blocks",
                    about="blockchair_bitcoin_blocks_YYYYMMDD.tsv, packed (.gz) or not",
                    licence="Blockchair's terms of service; no licence is stated",
                    url="https://gz.blockchair.com/bitcoin/blocks/",
                    beginning=re.compile(r"id\thash\ttime\t"),
                ),
            ),
        ),
        Provider(
            name="bitcoin-data",
            about="github.com/bitcoin-data, data sets of node operators",
            forms=(
                FileForm(
                    kind="arrivals",
                    about="a file of block-arrival-times/data, lines of height,hash,timestamp_ms",
                    licence="CC0-1.0",
                    url="https://github.com/bitcoin-data/block-arrival-times",
                    beginning=ARRIVAL_LINE,
                    source_per_file=True,
                ),
                FileForm(
                    kind="stale-blocks",
                    about="stale-blocks.csv of stale-blocks: height,hash,header",
                    licence="CC0-1.0",
                    url="https://github.com/bitcoin-data/stale-blocks",
                    beginning=re.compile(r"height,hash,header\s|\d+,[0-9a-f]{64},[0-9a-f]{160}\s"),
                    read=read_stale_blocks,
                ),
            ),
        ),
        Provider(
            name="bitcoinj",
            about="bitcoinj, the checkpoints that it ships",
            forms=(
                FileForm(
                    kind="headers",
                    about="checkpoints.txt: the header at each retarget",
                    licence="Apache-2.0",
                    url="https://github.com/bitcoinj/bitcoinj",
                    beginning=re.compile(r"TXT CHECKPOINTS 1\s"),
                    read=read_headers,
                ),
            ),
        ),
        Provider(
            name="kit",
            about="KIT, research group DSN, monitoring of the Bitcoin network",
            forms=(
                FileForm(
                    kind="arrivals",
                    about="KIT_monitor*.csv of bitcoin-data/block-arrival-times",
                    licence="CC0-1.0",
                    url="https://github.com/bitcoin-data/block-arrival-times",
                    beginning=ARRIVAL_LINE,
                    source_per_file=True,
                ),
            ),
        ),
        Provider(
            name="mempool-space",
            about="mempool.space, answers of its API",
            forms=(
                FileForm(
                    kind="blocks",
                    about="an answer of /api/v1/blocks or /api/v1/mining/pool/SLUG/blocks, saved as .json",
                    licence="mempool.space's terms of service; no licence is stated",
                    url="https://mempool.space/api/v1/blocks",
                    beginning=re.compile(r'\s*\[\s*(?:\]|\{[^}]*"(?:id|extras)"\s*:)'),
                ),
            ),
        ),
        Provider(
            name="paper",
            about="the authors of arXiv:1902.07549, their published data",
            forms=tuple(
                FileForm(
                    kind=kind,
                    about=about,
                    licence="Apache-2.0",
                    url="https://github.com/Canhui/Bitcoin_Mining_Pools",
                    beginning=re.compile(beginning),
                    read=read,
                )
                for kind, about, beginning, read in (
                    ("labels", "miningpool.csv: the pool of each block", r"blockid,miningpool\s", None),
                    ("prices", "bitcoin_price.csv: price by day", r"currency,date_UTC,price_USD\s", None),
                    ("sizes", "blocksize_*.xlsx: blocks of four pools", SPREADSHEET, read_block_sizes),
                    (
                        "hashrate",
                        "hash_rate.csv: hashrate by pool and day",
                        r"Time,50BTC\.com,",
                        read_hashrates,
                    ),
                )
            ),
        ),
    )
}


def read_files(
    paths: Sequence[Path],
    provider: str,
    *,
    chain: str = "main",
    kind: str | None = None,
    source: str | None = None,
    licence: str | None = None,
    url: str | None = None,
) -> list[ImportFile]:
    """Read and check files of one provider (publisher) and return their rows; nothing is stored.

    `kind` refuses files of another kind; `source`, `licence` and `url` replace what the list of providers
    says. Headers are held to the rules of `chain`, by the name that a node's RPC gives it. Raises DecodeError
    for a file that is not of the provider, WrongUsage for an unknown provider.
    """
    chosen = provider_of(provider)
    files = []
    for path in paths:
        form = form_of(path, chosen, kind)
        origin = Origin(source or source_of(path, chosen, form), licence or form.licence, url or form.url)
        read = None if form.read is None else functools.partial(form.read, chain=chain)
        files.append(read_import(form.kind, path, origin, currency=form.currency, read=read))
    return files


def provider_of(name: str) -> Provider:
    """Return the provider called `name`; raise WrongUsage if there is none."""
    if name not in PROVIDERS:
        raise WrongUsage(f"no provider {name!r}; there are {', '.join(PROVIDERS)}")
    return PROVIDERS[name]


def form_of(path: Path, provider: Provider, kind: str | None = None) -> FileForm:
    """Return the form of a file, found by its beginning; DecodeError if the provider has no such file.

    Raises WrongUsage if the provider has no file of the kind `kind`.
    """
    text = _beginning(path)
    forms = [form for form in provider.forms if kind in {None, form.kind}]
    if not forms:
        raise WrongUsage(
            f"{provider.name} has no {kind}, only {', '.join(form.kind for form in provider.forms)}"
        )
    for form in forms:
        if form.beginning.match(text):
            return form
    raise DecodeError(
        f"{path} is not imported from {provider.name}; these files are: "
        + "; ".join(form.about for form in forms)
    )


def source_of(path: Path, provider: Provider, form: FileForm) -> str:
    """Return a file's source name: its provider's name, with the file's name if each file is a source."""
    if not form.source_per_file:
        return provider.name
    stem = re.sub(r"[^a-z0-9._-]", "-", path.name.removesuffix(".gz").removesuffix(".csv").lower())
    return f"{provider.name}.{stem.removeprefix(f'{provider.name}_')}"


def _beginning(path: Path) -> str:
    """Return the first characters of a file, unpacked; bytes that are no text are replaced."""
    try:
        check_size(path, MAX_FILE_BYTES)
        with open_text(path, errors="replace") as file:
            return file.read(BEGINNING_CHARACTERS)
    except (EOFError, zlib.error) as error:
        raise DecodeError(f"{path} cannot be unpacked: {error}; fetch it anew") from None
    except OSError as error:
        raise DecodeError(f"cannot read {path}: {error.strerror or error}") from None
