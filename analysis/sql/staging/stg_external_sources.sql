/*
summary = "One row per file that was imported."
grain = ["source", "kind", "file_sha256"]
[columns]
source = "VARCHAR  Who says so; names rows of `external_sources`"
kind = "VARCHAR  What the file holds"
licence = "VARCHAR  Terms under which the source gives it"
url = "VARCHAR  Where it was taken from"
file_name = "VARCHAR  Name of the file, without its folder"
file_sha256 = "BLOB  SHA-256 of the file"
imported_at = "TIMESTAMP WITH TIME ZONE  Our clock"
n_rows = "BIGINT  Rows that were new"
*/
select
    source,
    kind,
    licence,
    url,
    file_name,
    file_sha256,
    imported_at,
    n_rows
from external_sources
