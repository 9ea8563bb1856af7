"""List the files that hold the rows of a relation, and make the query that reads only some of these files."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from analysis.catalog import Catalog, Model
from analysis.extents import SIGNS, Bound, Comparison, Extent, Known
from analysis.parts import Part, PartsFolder, Types, rows_sql
from analysis.raw_contents import Content, File
from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import TABLES

Flags = npt.NDArray[np.bool_]


class Extents:
    """Holds the least and greatest values of columns in many files; finds files that can hold given rows."""

    def __init__(self, extents: Sequence[Extent]) -> None:
        self._extents = extents
        self._columns: dict[str, tuple[Flags, Flags, npt.NDArray[Any], npt.NDArray[Any]]] = {}

    def admitted(self, bounds: Iterable[Bound], known: Known) -> Flags:
        """Return for each file whether it can hold a row that keeps all bounds: bool[files]."""
        every = np.ones(len(self._extents), bool)
        for bound in bounds:
            any_of = np.zeros(len(self._extents), bool)
            for comparisons in bound:
                all_of = np.ones(len(self._extents), bool)
                for each in comparisons:
                    all_of &= self._meeting(each, known)
                any_of |= all_of
            every &= any_of
        return every

    def _meeting(self, comparison: Comparison, known: Known) -> Flags:
        """Return for each file whether it can hold a row for which a comparison is true: bool[files]."""
        if comparison.name not in known:
            return np.ones(len(self._extents), bool)
        is_told, has_values, least, greatest = self._column(comparison.column)
        value = known[comparison.name]
        if value is None:
            return ~is_told
        numbers = greatest if comparison.sign.startswith(">") else least
        meets: Flags = SIGNS[comparison.sign](numbers, value + comparison.plus).astype(bool)
        return ~is_told | (has_values & meets)

    def _column(self, name: str) -> tuple[Flags, Flags, npt.NDArray[Any], npt.NDArray[Any]]:
        """Return four arrays with an item per file: what is known of the values of one column there.

        They say whether anything is known, whether there is a value, and give the least and the greatest
        value.
        """
        if name not in self._columns:
            told = [extent.get(name) or (0, 0) for extent in self._extents]
            self._columns[name] = (
                np.array([name in extent for extent in self._extents], bool),
                np.array([extent.get(name) is not None for extent in self._extents], bool),
                np.array([least for least, _ in told]),
                np.array([greatest for _, greatest in told]),
            )
        return self._columns[name]


@dataclass(frozen=True)
class Stored:
    """Holds the files of one relation, and `query`, which makes the SQL that reads some of them.

    `meaning` is a hash of what that SQL does with the rows, empty if it changes nothing. Where `is_summed`,
    the contents of files are numbers of rows and sums of their hashes; see raw_contents.py. Where
    `is_limited`, the relation has more files than these.
    """

    files: tuple[File, ...]
    meaning: str
    query: Callable[[Sequence[File]], str]
    is_summed: bool = False
    is_limited: bool = False

    def limited_to(self, files: Sequence[File]) -> "Stored":
        """Return the same relation with some of its files only."""
        is_limited = self.is_limited or len(files) < len(self.files)
        return replace(self, files=tuple(files), is_limited=is_limited)  # a copy, without what is cached

    def held(self, files: Sequence[File]) -> list[str]:
        """Return texts that identify the rows of some files, however the rows are spread over raw files."""
        if not self.is_summed:
            return [self.meaning, *(file.content for file in files)]
        numbers = [map(int, file.content.split()) for file in files]
        return [self.meaning, " ".join(str(sum(each)) for each in zip(*numbers, strict=True))]

    def values(self, files: Sequence[File], columns: Iterable[str]) -> Sequence[object]:
        """Return what identifies the values of some columns in all rows of some files.

        For raw files it also changes with other columns.
        """
        if self.is_summed:
            return self.held(files)
        names = list(columns)
        return [[file.n_rows, *(file.columns[name] for name in names)] for file in files if file.n_rows]

    def admitting(self, bounds: Sequence[Bound], known: Known) -> list[File]:
        """Return the files that can hold rows which keep all bounds."""
        return [self.files[number] for number in np.flatnonzero(self._extents.admitted(bounds, known))]

    @cached_property
    def _extents(self) -> Extents:
        return Extents([file.extent for file in self.files])

    def apart(self, columns: Iterable[str]) -> list[list[File]]:
        """Split the files into groups so that no value of one of the columns is in two; return the groups.

        The column that allows the most groups is taken. Files without rows are in no group.
        """
        files = [file for file in self.files if file.n_rows]
        found = [files]
        for column in columns:
            extents = [file.extent.get(column) for file in files]
            placed = [(both, file) for both, file in zip(extents, files, strict=True) if both]
            if len(placed) < len(files):
                continue
            groups: list[list[File]] = []
            reached = 0
            for (least, greatest), file in sorted(placed):
                if not groups or least > reached:
                    groups.append([])
                    reached = greatest
                groups[-1].append(file)
                reached = max(reached, greatest)
            found = max(found, groups, key=len)
        return found


def of_parts(parts: PartsFolder, made: Sequence[Part], types: Types) -> Stored:
    """Return a Stored with the files of a mart: its parts `made`, in the folder `parts`.

    `types` has the types of the mart's columns.
    """
    return Stored(
        tuple(File(part.file, part.content, part.extent, part.n_rows, part.columns) for part in made),
        "",
        partial(_of_parts, parts.folder, types),
    )


def _of_parts(folder: Path, types: Types, files: Sequence[File]) -> str:
    """Return the SQL that reads the given parts of a stored mart."""
    return rows_sql([folder / file.path for file in files], types)


def of_staging(
    catalog: Catalog, dataset: Dataset, raw: Mapping[str, Content], meanings: Mapping[str, str]
) -> Iterator[tuple[str, Stored]]:
    """Yield the name and the Stored of each staging model that reads one raw table and nothing else.

    The files are those of the raw table. `meanings` has a hash of what each staging model does with the rows.
    """
    for model in catalog.layer("staging"):
        if len(model.references) != 1:
            continue
        (name,) = model.references
        yield (
            model.name,
            Stored(
                raw[name].files, meanings[model.name], partial(_staged, dataset, model, name), is_summed=True
            ),
        )


def _staged(dataset: Dataset, model: Model, name: str, files: Sequence[File]) -> str:
    """Return the SQL of a staging model that reads only the given files of its raw table `name`."""
    rows = contract_rows(TABLES[name], [dataset.folder / Path(file.path) for file in files])
    own = f"{name} AS NOT MATERIALIZED {rows}"
    word, _, rest = model.sql.partition("\n")
    return f"WITH {own},\n{rest}" if word == "with" else f"WITH {own}\n{model.sql}"
