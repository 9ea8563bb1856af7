"""`pool-collector status`: what is collected, how far behind it is, and what is missing. Needs no node."""
