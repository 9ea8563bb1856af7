"""Write `collector/dataset/rows.py` from the schema: `make docs` runs it, a house test checks the result."""

import cog
import pyarrow as pa

from collector.dataset.schema import TABLES, Table

PYTHON_TYPES = {pa.string(): "str", pa.bool_(): "bool", pa.binary(): "bytes"}
IRREGULAR = {
    "coverage": "Coverage",
    "mempool_stats": "MempoolStats",
    "mempool_bodies": "MempoolBody",
    "blocks": "Block",
    "nodes": "Node",
}


def class_name(table: str) -> str:
    """Name the class of a table's rows: `mempool_txs` gives MempoolTxRow."""
    words = IRREGULAR.get(table) or "".join(word.capitalize() for word in table.split("_")).removesuffix("s")
    return f"{words}Row"


def write_row_types() -> None:
    """Put one class per table here, and one per kind of struct in a column."""
    written: set[str] = set()
    for table in TABLES.values():
        for line in _structs(table, written):
            cog.outl(line)
        doc = f"Holds a row of the raw table `{table.name}`, with the Python type of each column."
        cog.outl(f'\n\nclass {class_name(table.name)}(TypedDict):\n    """{doc}"""\n')
        for column in table.columns:
            python_type = _python_type(column.name, column.type)
            if column.nullable:
                python_type = f"NotRequired[{python_type} | None]"
            cog.outl(f"    {column.name}: {python_type}")
    cog.outl("")
    cog.outl("")
    cog.outl("ROW_TYPES: dict[str, type] = {")
    for name in TABLES:
        cog.outl(f'    "{name}": {class_name(name)},')
    cog.outl("}")


def _structs(table: Table, written: set[str]) -> list[str]:
    lines = []
    for column in table.columns:
        if not (pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type)):
            continue
        name = _struct_name(column.name)
        if name in written:
            continue
        written.add(name)
        lines += [
            "",
            "",
            f"class {name}(TypedDict):",
            f'    """Holds an element of the list `{column.name}`, with the Python type of each field."""',
            "",
        ]
        lines += [
            f"    {field.name}: {_python_type(field.name, field.type)}" for field in column.type.value_type
        ]
    return lines


def _struct_name(column: str) -> str:
    return "".join(word.capitalize() for word in column.split("_")).removesuffix("s") + "Item"


def _python_type(column: str, type_: pa.DataType) -> str:
    if pa.types.is_list(type_):
        is_struct = pa.types.is_struct(type_.value_type)
        return f"list[{_struct_name(column) if is_struct else _python_type(column, type_.value_type)}]"
    if pa.types.is_integer(type_) or pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        return "int"
    if pa.types.is_floating(type_):
        return "float"
    if pa.types.is_fixed_size_binary(type_):
        return "bytes"
    return PYTHON_TYPES[type_]
