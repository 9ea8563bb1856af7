"""Run the command line as python -m gpuhash."""

from gpuhash.cli import main

if __name__ == "__main__":
    main()
