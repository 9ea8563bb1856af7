"""Define the command `pool-collector upload`."""

import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from collector.dataset.command_options import (
    FOLDER_HELP,
    ChainOption,
    ConfigOption,
    DatasetOption,
    chosen_dataset,
)
from collector.errors import SettingsError, Stopped, StoreUnavailable, WrongUsage
from collector.log import counted

if TYPE_CHECKING:
    from collector.dataset.object_store import ObjectStore
    from collector.dataset.open import Dataset
    from collector.dataset.store_address import StoreAddress
    from collector.upload.run import Uploaded

LOOK_S: Final = 2.0  # how often --watch looks for new files


def upload_dataset(  # noqa: PLR0917 - typer passes every option by name
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[DATASET] ADDRESS",
            help=f"{FOLDER_HELP} ADDRESS is where its copy is or shall be: s3://bucket/prefix.",
        ),
    ],
    dataset_option: DatasetOption = None,
    config: ConfigOption = None,
    chain: ChainOption = None,
    endpoint: Annotated[
        str | None,
        typer.Option(help="URL of a store that is not Amazon's; default: $AWS_ENDPOINT_URL."),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Upload after each seal, until Ctrl-C.")] = False,
    patience: Annotated[
        float, typer.Option(min=0, help="Seconds for which one request is tried again.")
    ] = 300.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per upload that changed something.")
    ] = False,
) -> None:
    """Copy the dataset into an object store, or bring the copy up to date. It can be killed and run again.

    Safe while a collector writes and compaction runs. The key comes from the usual variables, such as
    AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.
    """
    from collector.dataset.open import open_existing

    dataset, where = _named(words, dataset_option, config)
    opened = open_existing(dataset, chain)  # before large libraries load
    from collector.dataset.object_store import ObjectStore

    store = ObjectStore(where, endpoint, patience_s=patience, on_retry=_complain)
    try:
        _upload(opened, store, is_watching=watch, as_json=as_json)
    except KeyboardInterrupt:
        raise Stopped("stopped; the copy can be read, and the same command goes on with it") from None


def _named(words: list[str], option: Path | None, config: Path | None) -> "tuple[Path, StoreAddress]":
    """Return the dataset and the address of its copy, from the words of the command line.

    Raises WrongUsage for more than two words, and for what is no address.
    """
    from collector.dataset.store_address import StoreAddress

    *folders, address = words
    if len(folders) > 1:
        raise WrongUsage(f"{len(words)} words are too many; write [DATASET] ADDRESS")  # one may have a secret
    try:
        where = StoreAddress.parse(address)
    except SettingsError as error:
        raise WrongUsage(str(error)) from None
    return chosen_dataset(Path(folders[0]) if folders else None, option, config), where


def _upload(dataset: "Dataset", store: "ObjectStore", *, is_watching: bool, as_json: bool) -> None:
    """Upload the dataset once, or after each seal until Ctrl-C.

    If the store does not answer, a single upload ends with an error; watching goes on.
    """
    from collector.upload.run import Upload, upload_lock

    def tell(done: "Uploaded") -> None:
        if done.n_put and not as_json:
            print(f"{counted(done.n_put, 'file')} uploaded so far", file=sys.stderr, flush=True)

    upload, pause = None, threading.Event()
    with upload_lock(dataset):
        while True:
            is_first = upload is None
            try:
                upload = upload or Upload.begin(dataset, store, tell)
                done = upload.bring_up_to_date()
            except StoreUnavailable as error:
                if not is_watching:
                    raise
                _complain(str(error))
            else:
                if is_first or done.has_changed:
                    print(json.dumps(done.as_json()) if as_json else _as_text(done, store), flush=True)
            if not is_watching:
                return
            pause.wait(LOOK_S)


def _complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _as_text(done: "Uploaded", store: "ObjectStore") -> str:
    text = f"{counted(done.n_put, 'file')} uploaded ({counted(done.bytes_put, 'byte')})"
    if done.n_repaired:
        text += f", {done.n_repaired} of them because the store had lost or changed them"
    if done.n_removed:
        text += f"; {done.n_removed} removed that the dataset no longer has"
    return f"{text}; {store.address} has {counted(done.n_files, 'file')} ({counted(done.n_bytes, 'byte')})"
