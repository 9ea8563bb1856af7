"""Write the data dictionary: the dataset contract as Markdown, for data/README.md and `schema --format`."""

import pyarrow as pa

from collector.dataset.schema import HEIGHT_SPAN, TABLES, Column, Table


def markdown() -> str:
    """Return the data dictionary as Markdown: for each table what a row is, its folders, its columns."""
    return "\n".join(_section(table) for table in TABLES.values())


def _section(table: Table) -> str:
    folder = f"date=YYYY-MM-DD/` (UTC day of `{table.day_column}`)"
    if table.day_column is None:
        folder = f"heights=<first>-<last>/` ({HEIGHT_SPAN:,} blocks)"
    lines = [
        f"### `{table.name}`",
        "",
        table.doc,
        "",
        f"- a row is identified by {_names(table.grain)}",
        f"- files: `{table.name}/{folder}, sorted by {_names(table.sort)}",
        f"- version {table.version}",
        "",
        "| column | type | null | what |",
        "|---|---|---|---|",
        *(_row(column) for column in table.columns),
    ]
    return "\n".join(lines) + "\n"


def _row(column: Column) -> str:
    what = column.doc
    if column.values:
        what += f" One of {', '.join(f'`{value}`' for value in column.values)}."
    null = "yes" if column.nullable else ""
    return f"| `{column.name}` | {type_name(column.type)} | {null} | {what.replace('|', '&#124;')} |"


def type_name(type_: pa.DataType) -> str:
    """Return a short name of an Arrow type; that of a list or struct names the types within."""
    if pa.types.is_list(type_):
        return f"list of {type_name(type_.value_type)}"
    if pa.types.is_struct(type_):
        return f"({', '.join(f'{field.name} {type_name(field.type)}' for field in type_)})"
    if pa.types.is_fixed_size_binary(type_):
        return f"binary({type_.byte_width})"
    if pa.types.is_timestamp(type_):
        return f"timestamp[{type_.unit}, {type_.tz}]"
    return str(type_)


def _names(columns: tuple[str, ...]) -> str:
    return ", ".join(f"`{column}`" for column in columns)
