"""Play faults and write what came of it: see `python -m tests.functional.chaos --help`."""

from tests.functional.chaos.cli import main

if __name__ == "__main__":
    main()
