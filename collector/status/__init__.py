"""Run `pool-collector status`: show what a dataset holds, until when, and its gaps. It asks no node."""
