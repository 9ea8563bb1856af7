"""Run the command line as `python -m analysis`."""

from analysis.cli import main

if __name__ == "__main__":
    main()
