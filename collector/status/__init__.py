"""`pool-collector status`: show what a dataset holds, how old its end is, and its gaps. It asks no node."""
