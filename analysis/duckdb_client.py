"""Find the `duckdb` command-line client and open it on a database, or say how to get it."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import typer

from analysis.database import names_in_queries
from analysis.errors import DatabaseError
from analysis.parts import literal, parts_folder

CLIENT: Final = "duckdb"
# The oldest client that reads our files; see STORAGE in database.py.
CLIENT_VERSION: Final = "1.4"
# In safe mode the client opens no other file, runs no program and changes no setting. The files are named
# one by one, in both forms of `names_in_queries`, because in a folder that is allowed COPY makes new files.
CONFINE: Final = """
    SET TimeZone = 'UTC';
    SET VARIABLE parts = (
        SELECT coalesce(list(form || file[length({folder}) + 1 :]), [])
        FROM glob({pattern}), (VALUES ({folder}), ({escaped})) AS forms(form)
    );
    SET allowed_paths = getvariable('parts');
    SET enable_external_access = false;
"""


def open_shell(database: Path) -> int:
    """Open the `duckdb` client on a database, read-only, wait until it ends, and return its exit status.

    The client itself prints why a query failed. Where no client is on PATH, print how to get one; return 0.

    The client runs in its safe mode: it reads the database and the files of its parts, and no other file. Raw
    tables and staging views read the dataset's files, so they cannot be read there. It makes no file. DuckDB
    cannot forbid COPY to write over a file that it may read, but does so only with USE_TMP_FILE false; the
    next build then makes that file anew.

    Raises DatabaseError where the client fails and is too old, or where a signal ended it.
    """
    client = shutil.which(CLIENT)
    if client is None:
        typer.echo(how_to(database))
        return 0
    folder, escaped = names_in_queries(parts_folder(database))
    confine = CONFINE.format(
        folder=literal(folder), escaped=literal(escaped), pattern=literal(f"{escaped}/*/*.parquet")
    )
    command = [client, "-init", os.devnull, "-readonly", "-cmd", confine, "-cmd", ".safe_mode", str(database)]
    status = subprocess.run(command, check=False).returncode  # noqa: S603 - the client on PATH and a file
    if status < 0:
        raise DatabaseError(f"signal {-status} ended {client}; open it again")
    if status and (old := _older_version(client)):
        raise DatabaseError(
            f"{client} is DuckDB {old}; {database} needs {CLIENT_VERSION} or newer, such as that of"
            " `python -m pip install duckdb-cli`"
        )
    return status


def _older_version(client: str) -> str | None:
    """Return the version of a client that is older than CLIENT_VERSION; None for any other client."""
    answer = subprocess.run([client, "-version"], capture_output=True, text=True, check=False).stdout  # noqa: S603 - the client on PATH
    found = re.match(r"v?((\d+)\.(\d+)\S*)", answer)
    oldest = tuple(map(int, CLIENT_VERSION.split(".")))
    return found[1] if found and (int(found[2]), int(found[3])) < oldest else None


def how_to(database: Path) -> str:
    """Return a text on how to install the `duckdb` client, how to use it, and what works without it."""
    return f"""\
There is no `{CLIENT}` client on PATH. Version {CLIENT_VERSION} or newer reads the database:

  python -m pip install duckdb-cli             from the package index; or see https://duckdb.org/install
  {CLIENT} -readonly {database}                  then: SHOW TABLES;  FROM pool_share;  .quit
  {CLIENT} -readonly {database} 'FROM pool_share'

Without a client, one query at a time:

  pool-analysis sql --database {database} 'FROM pool_share' --format csv"""
