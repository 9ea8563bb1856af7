"""Download public data sets by a list, check them, and import them as data of others."""
