"""Parse the address of a dataset in an object store: `s3://bucket/prefix`."""

import re
from pathlib import Path
from typing import Final, NamedTuple, Self

from collector.errors import SettingsError

SCHEME: Final = "s3://"
PATH_SCHEME: Final = "s3:/"  # what a path makes of it
# A path that begins like an address; of other schemes only with an @, before which a secret may stand.
LIKE_ADDRESS: Final = re.compile(rf"{PATH_SCHEME}|[A-Za-z][A-Za-z0-9+.-]*:/.*@", re.DOTALL)
# S3 allows dots, lower case letters, digits and dashes; some other stores allow capitals and underscores.
BUCKET: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
BUCKET_LENGTHS: Final = range(3, 64)  # in characters
PART: Final = re.compile(
    r"[A-Za-z0-9!_.*'()=-]+"
)  # characters that every store and client writes as they are


class StoreAddress(NamedTuple):
    """Names a dataset in an object store; `prefix` has no slash at its ends, and may be empty."""

    bucket: str
    prefix: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the address that a text such as `s3://bucket/prefix` names; SettingsError if it is none.

        The error does not show a text with an @.
        """
        if "@" in text:  # a secret may stand before it, with slashes in it
            raise SettingsError(
                "an address in an object store has no key and no secret; write it as s3://bucket/prefix, and"
                " give both in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
        prefix = prefix.rstrip("/")
        if not text.startswith(SCHEME) or not BUCKET.fullmatch(bucket):
            raise SettingsError(
                f"{text!r} is no address in an object store; write it as s3://bucket/prefix, with letters,"
                " digits and - _ . in the bucket's name, the first and last of them a letter or digit"
            )
        if len(bucket) not in BUCKET_LENGTHS:
            raise SettingsError(
                f"{bucket!r} is no name of a bucket, which has {BUCKET_LENGTHS[0]} to {BUCKET_LENGTHS[-1]}"
                " characters"
            )
        for part in prefix.split("/") if prefix else ():
            if not PART.fullmatch(part) or part in {".", ".."}:
                raise SettingsError(
                    f"the prefix {prefix!r} has the part {part!r}; use letters, digits and - _ . ="
                    " between single slashes"
                )
        return cls(bucket, prefix)

    @classmethod
    def in_path(cls, path: Path) -> Self | None:
        """Return the address if `path`, as the user gave it, is one in an object store.

        None for a path on disk. Raises SettingsError for a wrong address.
        """
        return cls.parse(SCHEME + path.as_posix().removeprefix(PATH_SCHEME)) if names_store(path) else None

    def key(self, path: str) -> str:
        """Return the store's key of the object for `path`, which is relative to the dataset."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def path(self, key: str) -> str:
        """Return the path, relative to the dataset, of the object with a key below the address's prefix."""
        return key.removeprefix(f"{self.prefix}/") if self.prefix else key

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.prefix}" if self.prefix else f"{SCHEME}{self.bucket}"


def names_store(path: Path) -> bool:
    """Return whether a path, as the user gave it, is in fact an address, if perhaps a wrong one."""
    return LIKE_ADDRESS.match(path.as_posix()) is not None
