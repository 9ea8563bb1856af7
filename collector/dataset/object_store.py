"""Read and write the objects of a dataset in an object store that speaks S3, by boto3.

Keys and the endpoint come from where every program for S3 looks: `AWS_ACCESS_KEY_ID`,
`AWS_SECRET_ACCESS_KEY`, `AWS_PROFILE`, `AWS_REGION`, `AWS_ENDPOINT_URL`, the files in `~/.aws`, or the role
of the machine. No message has any of them.

A request is tried again when the store says that it is busy (429, 500 to 504), when it is slow, or when the
connection breaks. Pauses double. boto3's own attempts are switched off, so that there is one rule.

An object appears when its put has ended, whole, under its key. A put of the same key replaces the object in
one step.
"""

import hashlib
import importlib
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

from collector.backoff import retry
from collector.dataset.extras import import_extra
from collector.dataset.store_address import StoreAddress
from collector.dataset.store_errors import in_words, is_missing, library_errors
from collector.errors import SettingsError, StoreError, StoreUnavailable
from collector.log import printable

CHUNK_BYTES: Final = 1 << 20
MOST_PUT_BYTES: Final = 5 * 10**9  # S3 takes no more in one put
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0

T = TypeVar("T")


class StoredObject(NamedTuple):
    """Holds what an object store says of one object: its path in the dataset, size in bytes and ETag."""

    path: str  # relative to the dataset
    size_bytes: int
    etag: str  # names this content of the object; it is its MD5 in many stores


@dataclass
class ObjectStore:
    """Gives access to the objects of a dataset in an S3 store. Bounds on time are in seconds."""

    address: StoreAddress
    endpoint: str | None = None  # URL of the store; None: what the environment names, or else Amazon's
    patience_s: float = 300.0  # how long one request is tried again
    answer_s: float = 60.0  # a store that is silent for so long within a request has stalled
    first_pause_s: float = FIRST_PAUSE_S
    stop: threading.Event = field(default_factory=threading.Event)
    on_retry: Callable[[str], None] = lambda _: None  # hears why a request is about to be tried again

    def get(self, path: str) -> tuple[bytes, str] | None:
        """Return the content and the ETag of a small object; None if there is none."""

        def attempt() -> tuple[bytes, str]:
            answer = self._client.get_object(**self._named(path))
            return answer["Body"].read(), answer["ETag"]

        return self._request(attempt, missing=None)

    def fetch(self, path: str, sink: BinaryIO) -> str | None:
        """Write the content of an object into an empty file; return its SHA-256, None if there is no object.

        The digest is in hexadecimal digits.
        """

        def attempt() -> str:
            answer = self._client.get_object(**self._named(path))
            sink.seek(0)
            sink.truncate()
            digest = hashlib.sha256()
            for chunk in answer["Body"].iter_chunks(CHUNK_BYTES):
                digest.update(chunk)
                sink.write(chunk)
            return digest.hexdigest()

        return self._request(attempt, missing=None)

    def look(self, path: str) -> StoredObject | None:
        """Return size and ETag that the store reports now for an object; None if there is none."""

        def attempt() -> StoredObject:
            answer = self._client.head_object(**self._named(path))
            return StoredObject(path, answer["ContentLength"], answer["ETag"])

        return self._request(attempt, missing=None)

    def objects(self, folder: str) -> Iterator[StoredObject]:
        """Yield size and ETag of the objects below a folder of the dataset (`""` for all).

        Objects that stand for folders, as web consoles make them, are left out; their names end with a slash.
        A store may list late: an object may be missing that is there, and one be listed that has gone.
        """
        below = self.address.key(f"{folder}/" if folder else "")
        token: dict[str, str] = {}
        while True:
            more = dict(token)

            def attempt(more: dict[str, str] = more) -> Any:
                return self._client.list_objects_v2(Bucket=self.address.bucket, Prefix=below, **more)

            page = self._request(attempt)
            for each in page.get("Contents", ()):
                if not each["Key"].endswith("/"):
                    yield StoredObject(self.address.path(each["Key"]), each["Size"], each["ETag"])
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def put_file(self, path: str, source: BinaryIO, size_bytes: int, md5: str) -> str:
        """Store the content of an open file, verify it, and return its ETag; `md5` is in hexadecimal digits.

        It is verified by the ETag if that is the MD5 of what the store received, else by reading the object
        back. What arrived damaged is put again. Raises StoreError for a file that is too large,
        StoreUnavailable if no attempt succeeds.
        """
        if size_bytes > MOST_PUT_BYTES:
            raise StoreError(
                f"{path} has {size_bytes:,} bytes, and a store takes at most {MOST_PUT_BYTES:,} in one put;"
                " keep fewer days of raw bytes, or copy it by hand"
            )

        def attempt() -> str:
            source.seek(0)
            answer = self._client.put_object(**self._named(path), Body=source, ContentLength=size_bytes)
            etag = str(answer["ETag"])
            if etag.strip('"') != md5 and self._md5(path) != md5:
                raise StoreUnavailable(f"{self._name(path)} arrived damaged; try again later")
            return etag

        return self._request(attempt)

    def replace(self, path: str, content: bytes, etag: str | None) -> str:
        """Store a small object if the stored one still has `etag` (None: if there is none); return its ETag.

        Raises StoreChanged if another process has stored it meanwhile, and also if our own put arrived but
        the answer to it did not. A store without conditional writes does not notice either. Raises StoreError
        if there should be an object and the store has lost it.
        """
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}

        def attempt() -> str:
            return str(self._client.put_object(**self._named(path), Body=content, **condition)["ETag"])

        stored: str | None = self._request(attempt, missing=None)
        if stored is None:
            raise StoreError(f"the store has lost {self._name(path)}; call `pool-collector upload` again")
        return stored

    def remove(self, path: str) -> None:
        """Remove an object; it is no error if there is none."""
        self._request(lambda: self._client.delete_object(**self._named(path)), missing=None)

    def _md5(self, path: str) -> str:
        """Return the MD5 of an object in hexadecimal digits; the object is read for that."""
        digest = hashlib.md5(usedforsecurity=False)
        for chunk in self._client.get_object(**self._named(path))["Body"].iter_chunks(CHUNK_BYTES):
            digest.update(chunk)
        return digest.hexdigest()

    def _request(self, attempt: Callable[[], T], **default: Any) -> T:
        """Return the result of `attempt`, which is repeated while the store is unavailable, with pauses.

        If `missing` is given, it is returned when the object is not there. Errors of boto3 become StoreErrors
        or SettingsErrors.
        """

        def translated() -> T:
            try:
                return attempt()
            except library_errors() as error:
                if default and is_missing(error):
                    value: T = default["missing"]
                    return value
                raise in_words(error, self.address) from None

        return retry(
            translated,
            on=StoreUnavailable,
            first_s=self.first_pause_s,
            longest_s=LONGEST_PAUSE_S,
            stop=self.stop,
            patience_s=self.patience_s,
            before_pause=lambda error: self.on_retry(str(error)),
        )

    def _named(self, path: str) -> dict[str, str]:
        return {"Bucket": self.address.bucket, "Key": self.address.key(path)}

    def _name(self, path: str) -> str:
        return f"{StoreAddress(self.address.bucket, self.address.key(path))}"

    @property
    def identity(self) -> str:
        """Return the store's URL and the address in it as one unique text; it is not for display."""
        return f"{self._endpoint_url} {self.address}"

    @property
    def _endpoint_url(self) -> str | None:
        named = (os.environ.get(name) for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"))
        return self.endpoint or next(filter(None, named), None)

    @cached_property
    def _client(self) -> Any:
        endpoint = self._endpoint_url
        if endpoint and ("@" in endpoint or not endpoint.startswith(("http://", "https://"))):
            raise SettingsError("the endpoint must be an http or https URL without user and password")
        boto3, config = _boto3(), importlib.import_module("botocore.config")
        try:
            return boto3.client(
                "s3",
                endpoint_url=endpoint,
                region_name=os.environ.get("AWS_REGION"),  # boto3 itself reads only AWS_DEFAULT_REGION
                config=config.Config(
                    connect_timeout=min(self.answer_s, 10.0),
                    read_timeout=self.answer_s,
                    retries={"total_max_attempts": 1},
                    # Many stores that speak S3 know none of Amazon's newer checksums.
                    request_checksum_calculation="when_required",
                    response_checksum_validation="when_required",
                    # A bucket of one's own store has no host name of its own.
                    s3={"addressing_style": "path" if endpoint else "auto"},
                ),
            )
        except ValueError:
            raise SettingsError("the endpoint is no URL such as https://store.example") from None
        except library_errors() as error:
            raise SettingsError(f"the settings for the store are wrong: {printable(str(error))}") from None


def _boto3() -> Any:
    """Return the module boto3. Raises SettingsError where it is not installed."""
    return import_extra("boto3", "s3", "an object store needs boto3")
