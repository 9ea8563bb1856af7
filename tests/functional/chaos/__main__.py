"""Play faults and write a report of the outcomes: see `python -m tests.functional.chaos --help`."""

from tests.functional.chaos.cli import main

if __name__ == "__main__":
    main()
