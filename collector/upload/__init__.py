"""Copy a dataset into an object store while a collector writes it and compaction replaces its files."""
