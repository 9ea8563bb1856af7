"""Define the dataset on disk: its contract, and how its files are opened, locked, written and read."""

from collector.errors import DatasetError

__all__ = ["DatasetError"]
