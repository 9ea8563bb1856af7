"""The dataset on disk: its contract, and how files of it are opened, locked, written and read."""

from collector.errors import DatasetError

__all__ = ["DatasetError"]
