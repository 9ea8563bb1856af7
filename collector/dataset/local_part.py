"""Find the folder on this disk that belongs to a dataset in an object store: its local part.

A collector or a backfill of `s3://bucket/prefix` works in such a folder as in any dataset. Journal and locks
stay in it, and every file that is sealed there is uploaded.
"""

from pathlib import Path
from typing import Final, NamedTuple

from collector.config import Settings
from collector.dataset.marker import DATASET_MARKER
from collector.dataset.store_address import StoreAddress
from collector.errors import DatasetError, SettingsError

LOCAL_PARTS: Final = Path("data/stores")


def local_part(address: StoreAddress) -> Path:
    """Return the folder that is the local part of a dataset in a store, unless a setting names another."""
    return LOCAL_PARTS / address.bucket / (address.prefix or "_")


def with_local_part(settings: Settings) -> Settings:
    """Return settings in which `dataset` is a folder: an address in it moves to the setting `store`.

    Raises SettingsError for a wrong address, and where both settings name a store, but not the same one.
    """
    named = None if settings.store is None else StoreAddress.parse(settings.store)
    address = StoreAddress.in_path(settings.dataset)
    if address is None:
        return settings
    if named not in {None, address}:
        raise SettingsError(
            f"dataset is {address} and store is {named}; name one of them, or a folder as the dataset"
        )
    return settings.model_copy(update={"dataset": local_part(address), "store": str(address)})


class Place(NamedTuple):
    """Says where a dataset is on this disk, and which store gets its files, if any."""

    folder: Path
    store: str | None


def found_local_part(path: Path) -> Place:
    """Return the place of an existing dataset that the user named as a folder or as an address in a store.

    Raises DatasetError if the local part of a dataset in a store is not on this disk.
    """
    address = StoreAddress.in_path(path)
    if address is None:
        return Place(path, None)
    folder = local_part(address)
    if not (folder / DATASET_MARKER).exists():
        raise DatasetError(
            f"the files of {address} are changed where they are written, and {folder} is not here; call this"
            " in the folder in which `pool-collector run` was called, or name the dataset's folder"
        )
    return Place(folder, str(address))
