"""`pool-collector check`: whether a dataset is what its contract says, and how to mend it where it is not."""
