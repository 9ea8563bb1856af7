"""Read and write the object `files.json`, which lists the files of a chain in an object store.

A store cannot put one folder in the place of another. So one object names the files that belong together,
and replacing it is the one step by which compaction becomes visible: a reader that follows the list sees the
files before or the file after, each row once. The list has the size and the SHA-256 of every file, so a
reader knows that what it got is what was uploaded.

An ETag condition on each replacement keeps two uploads from overwriting each other's list: every upload first
writes its own name into the list, and from then on the list of any other is refused.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from collector.dataset.open import CHAIN_PREFIX
from collector.dataset.schema import TABLES
from collector.dataset.store_address import StoreAddress
from collector.errors import StoreError

LIST_NAME: Final = "files.json"  # in the folder of a chain
HEX: Final = r"^[0-9a-f]+$"
# <table>/<partition>/<name>.parquet; nothing in it is hidden or leads out of its folder.
_NAME: Final = r"[^/.\x00-\x1f][^/\x00-\x1f]*"
FILE_PATH: Final = re.compile(rf"(?:{'|'.join(TABLES)})/{_NAME}/{_NAME}\.parquet")


class ListedFile(BaseModel):
    """Describes one file of a dataset in an object store: size, SHA-256, ETag and local time of change.

    Its path, relative to the folder of the chain, is its key in the list.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    size_bytes: int = Field(ge=0)
    sha256: Annotated[str, Field(pattern=HEX, min_length=64, max_length=64)]
    etag: str  # the store's name of this content
    changed_at_ns: int  # when the local file was last changed, since 1970 UTC


class FileList(BaseModel):
    """Holds the content of `files.json`: the files of one chain in an object store, and who wrote them."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["pool-measurement files"] = "pool-measurement files"
    version: Literal[1] = 1
    dataset: Annotated[str, Field(pattern=HEX)]  # identifies the dataset that is uploaded here, and no other
    writer: Annotated[str, Field(pattern=HEX)]  # identifies the run that wrote the list
    files: dict[str, ListedFile] = {}

    @classmethod
    def read(cls, content: bytes, where: StoreAddress) -> Self:
        """Return the list of files that the bytes of `files.json` hold.

        Raises StoreError that names the store `where` if it is no list of ours.
        """
        try:
            found = cls.model_validate_json(content)
        except ValidationError:
            found = None
        if found is None or not all(FILE_PATH.fullmatch(path) for path in found.files):
            raise StoreError(
                f"{where} has a {LIST_NAME} that this software cannot read; a newer release or another"
                " program wrote it: use that one, or choose another prefix"
            )
        return found

    def content(self) -> bytes:
        """Return this list of files as the bytes of `files.json`."""
        return self.model_dump_json(indent=1).encode()


def list_path(chain: str) -> str:
    """Return the path of the list `files.json` of a chain, relative to the dataset."""
    return f"{CHAIN_PREFIX}{chain}/{LIST_NAME}"
