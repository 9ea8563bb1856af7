"""Find the folder on this disk that belongs to a dataset in an object store: its local part.

A collector or a backfill of `s3://bucket/prefix` works in such a folder as in any dataset. Journal and locks
stay in it, and every file that is sealed there is uploaded.
"""

from pathlib import Path
from typing import Final

from collector.config import Settings
from collector.dataset.store_address import StoreAddress

LOCAL_PARTS: Final = Path("data/stores")


def local_part(address: StoreAddress) -> Path:
    """Return the folder that is the local part of a dataset in a store, unless a setting names another."""
    return LOCAL_PARTS / address.bucket / (address.prefix or "_")


def with_local_part(settings: Settings) -> Settings:
    """Return settings in which `dataset` is a folder: an address in it moves to the setting `store`.

    Raises SettingsError for a wrong address.
    """
    if settings.store is not None:
        StoreAddress.parse(settings.store)
    address = StoreAddress.in_path(settings.dataset)
    if address is None:
        return settings
    return settings.model_copy(update={"dataset": local_part(address), "store": str(address)})
