"""Keep an Apache Iceberg catalogue in step with a dataset, so that other engines read its tables.

No row is copied: the metadata of Iceberg names our Parquet files where they lie. A table is called
`<chain>.<table>`. It is cut by the UTC day of its time, or by a thousand heights, as its folders are. Files
that are new are added, and files that a compaction replaced are taken out, in one snapshot. So each row is in
every snapshot once, and a reader sees the state before or the state after. The read lock of the dataset is
held meanwhile, so that no compaction comes between.

A file is known by its path. It counts as changed if its size differs, or if it was written or renamed after
the last snapshot: `pool-collector mend` and a later backfill fill fees in place.
"""

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pyarrow as pa

from collector.dataset.extras import import_extra
from collector.dataset.files import lock_taken, make_folder
from collector.dataset.open import Dataset
from collector.dataset.schema import HEIGHT_SPAN, TABLES, Table
from collector.errors import DatasetError, SettingsError

OWN_FOLDER: Final = "iceberg"  # in the folder of the dataset: the catalogue of our own and all metadata
OWN_NAME: Final = "pool-measurement"
CATALOG_LOCK: Final = ".catalog.lock"  # in the folder of a chain: one call at a time
UNUSED_AFTER_S: Final = 3600.0  # a reader that opened a snapshot may still need its metadata so long
HEIGHT: Final = "height"
TIME: Final = pa.timestamp("us", tz="UTC")  # Iceberg has no other unit before its version 3
NAME_MAPPING: Final = "schema.name-mapping.default"  # a table has it once it is complete
TABLE_PROPERTIES: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogedTable:
    """Says what an update did to one Iceberg table: files added and removed, files and rows listed now.

    `metadata` is the address of the table's Iceberg metadata.
    """

    name: str
    n_added: int
    n_removed: int
    n_files: int
    n_rows: int
    metadata: str  # address of the newest metadata file; DuckDB's iceberg_scan() takes it

    def as_json(self) -> dict[str, Any]:
        """Return what an update did to an Iceberg table as a dict for JSON."""
        return asdict(self)


def own_catalog(dataset: Dataset) -> Any:
    """Open the SQLite catalogue in the dataset's folder and return it; make it where it is missing.

    Raises SettingsError where pyiceberg is not installed, or where Iceberg cannot name the folder.
    """
    sql = _pyiceberg("catalog.sql")
    folder = _own_folder(dataset)
    if any(sign in str(folder) for sign in "?#"):
        raise SettingsError(f"{folder} has a ? or a #, which Iceberg cannot name; move the dataset")
    make_folder(folder)
    uri = f"sqlite:///{quote(str(folder / 'catalog.db'))}"  # SQLAlchemy decodes it
    return sql.SqlCatalog(OWN_NAME, uri=uri, warehouse=_own_warehouse(dataset))


def named_catalog(name: str) -> Any:
    """Return a catalogue of pyiceberg's own settings: ~/.pyiceberg.yaml or PYICEBERG_CATALOG__<NAME>__URI.

    Raises SettingsError where pyiceberg is not installed, or knows no such catalogue.
    """
    catalogs = _pyiceberg("catalog")
    errors = _pyiceberg("exceptions")
    try:
        return catalogs.load_catalog(name)
    except (ValueError, errors.RESTError, ImportError, OSError) as error:
        raise SettingsError(f"the catalogue {name!r} cannot be opened: {error}") from None


def bring_up_to_date(dataset: Dataset, catalog: Any) -> Iterator[CatalogedTable]:
    """Make every Iceberg table list the files of the dataset; yield what was done to each table.

    Raises DatasetError for a file that is not one of ours, and when another call is at work.
    """
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it warns of every column without statistics
    refusal = f"another call of `pool-collector catalog` works on {dataset.root}; wait until it has ended"
    make_folder(dataset.folder)
    with lock_taken(dataset.folder / CATALOG_LOCK, refusal), dataset.read_lock():
        wanted = {name: _files(dataset, table) for name, table in TABLES.items()}
        catalog.create_namespace_if_not_exists(dataset.chain)
        for name, table in TABLES.items():
            yield _Listing(_load(catalog, dataset.chain, table), table).bring_up_to_date(wanted[name])
    if catalog.properties.get("warehouse") == _own_warehouse(dataset):
        remove_unused_metadata(dataset, catalog)


def remove_unused_metadata(dataset: Dataset, catalog: Any) -> None:
    """Remove metadata files of our own Iceberg catalogue over an hour old that no snapshot names."""
    latest_s = time.time() - UNUSED_AFTER_S
    for name in TABLES:
        table = catalog.load_table((dataset.chain, name))
        used = {Path(urlsplit(address).path) for address in _metadata_files(table)}
        for path in (_own_folder(dataset) / dataset.chain / name / "metadata").glob("*"):
            if path not in used:
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < latest_s:
                        path.unlink()


class _Listing:
    """Brings one table of the Iceberg catalogue up to date with the files of the dataset."""

    def __init__(self, iceberg: Any, table: Table) -> None:
        self._iceberg = iceberg
        self._table = table

    def bring_up_to_date(self, wanted: Mapping[str, Path]) -> CatalogedTable:
        """Commit an Iceberg snapshot that lists exactly the wanted files, if the newest one does not.

        Returns the counts as a CatalogedTable.
        """
        self._evolve()
        listed = {task.file.file_path: task.file for task in self._iceberg.scan().plan_files()}
        snapshot = self._iceberg.current_snapshot()
        changed = {
            address
            for address in wanted.keys() & listed.keys()
            if _has_changed(wanted[address], listed[address], snapshot.timestamp_ms)
        }
        added = sorted((wanted.keys() - listed.keys()) | changed)
        removed = sorted((listed.keys() - wanted.keys()) | changed)
        if added or removed:
            self._commit(added, [listed[address] for address in removed])
        if removed:
            # Older snapshots name files that are gone.
            self._iceberg.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
        rows = [task.file.record_count for task in self._iceberg.scan().plan_files()]
        return CatalogedTable(
            name=self._table.name,
            n_added=len(added),
            n_removed=len(removed),
            n_files=len(rows),
            n_rows=sum(rows),
            metadata=self._iceberg.metadata_location,
        )

    def _evolve(self) -> None:
        """Add the columns that the contract has and the Iceberg table lacks, and all column descriptions."""
        schema = arrow_schema(self._table)
        if set(schema.names) - set(self._iceberg.schema().column_names):
            with self._iceberg.update_schema() as update:
                update.union_by_name(schema)

    def _commit(self, added: Sequence[str], removed: Sequence[Any]) -> None:
        arrow_io = _pyiceberg("io.pyarrow")
        with self._iceberg.transaction() as transaction:
            update = transaction.update_snapshot(snapshot_properties={"pool-measurement.chain": self._chain})
            with update.overwrite() if removed else update.fast_append() as files:
                for data_file in removed:
                    files.delete_data_file(data_file)
                try:
                    for data_file in arrow_io.parquet_files_to_data_files(
                        self._iceberg.io, transaction.table_metadata, iter(added)
                    ):
                        files.append_data_file(data_file)
                except (pa.ArrowException, ValueError, TypeError) as error:
                    raise DatasetError(
                        f"a file of {self._table.name} cannot be listed ({error});"
                        " `pool-collector check` names faulty files"
                    ) from error

    @property
    def _chain(self) -> str:
        return str(self._iceberg.name()[-2])


def arrow_schema(table: Table) -> pa.Schema:
    """Return the Arrow schema of a table in a form that Iceberg can hold: all times in microseconds."""
    return pa.schema(
        field.with_type(TIME) if pa.types.is_timestamp(field.type) else field for field in table.arrow
    )


def _load(catalog: Any, chain: str, table: Table) -> Any:
    """Return a table of the Iceberg catalogue; make the table where it is missing, or a kill left half of it.

    Raises DatasetError where the catalogue names metadata that is not there.
    """
    errors = _pyiceberg("exceptions")
    name = (chain, table.name)
    try:
        iceberg = catalog.load_table(name)
    except FileNotFoundError as error:
        raise DatasetError(
            f"the catalogue names metadata that is gone ({error}). Was the dataset moved? Remove its folder"
            f" {OWN_FOLDER} and call again: the catalogue is made anew"
        ) from None
    except errors.NoSuchTableError:
        iceberg = catalog.create_table(name, schema=arrow_schema(table), properties=TABLE_PROPERTIES)
    if NAME_MAPPING in iceberg.properties:
        return iceberg
    transforms = _pyiceberg("transforms")
    with iceberg.transaction() as transaction:
        # Our files have no ids of columns, so readers find the columns by name.
        transaction.set_properties(
            {
                NAME_MAPPING: iceberg.schema().name_mapping.model_dump_json(),
                "comment": table.doc,
            }
        )
        with transaction.update_spec() as spec:
            if table.day_column:
                spec.add_field(table.day_column, transforms.DayTransform(), "day")
            else:
                spec.add_field(HEIGHT, transforms.TruncateTransform(HEIGHT_SPAN), "heights")
    return catalog.load_table(name)


def _files(dataset: Dataset, table: Table) -> dict[str, Path]:
    """Return the path of each Parquet file of a table, keyed by its Iceberg address (file://…)."""
    dataset.refuse_strange_paths(table)
    paths = [path.resolve() for path in dataset.paths(table)]
    return {f"file://{path}": path for path in paths}


def _has_changed(path: Path, listed: Any, snapshot_ms: int) -> bool:
    """Return whether a Parquet file may have changed since the newest Iceberg snapshot listed it.

    Its size and the time of its last change decide.
    """
    status = path.stat()
    return status.st_size != listed.file_size_in_bytes or status.st_ctime_ns // 1_000_000 >= snapshot_ms


def _metadata_files(iceberg: Any) -> Iterator[str]:
    """Yield the address of every metadata file that the newest metadata of an Iceberg table names."""
    yield iceberg.metadata_location
    yield from (entry.metadata_file for entry in iceberg.metadata.metadata_log)
    for snapshot in iceberg.metadata.snapshots:
        yield snapshot.manifest_list
        yield from (manifest.manifest_path for manifest in snapshot.manifests(iceberg.io))


def _own_folder(dataset: Dataset) -> Path:
    return dataset.root.resolve() / OWN_FOLDER


def _own_warehouse(dataset: Dataset) -> str:
    return f"file://{_own_folder(dataset)}"


def _pyiceberg(module: str) -> Any:
    """Return a module of pyiceberg. Raises SettingsError where it is not installed."""
    return import_extra(f"pyiceberg.{module}", "iceberg", "a catalogue needs pyiceberg")
