"""Run `pool-collector check`: say whether a dataset keeps its contract, and how to mend it if not."""
