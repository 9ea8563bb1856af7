"""`python -m collector` is `pool-collector`."""

from collector.cli import main

main()
