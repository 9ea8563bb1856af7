"""List the files of a dataset in an Apache Iceberg catalogue, by which other engines read its tables."""
