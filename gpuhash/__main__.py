"""Run the command line as python -m gpuhash."""


def run() -> None:
    """Run the command `gpuhash`; on a bare machine, name the packages to install if one is missing."""
    try:
        from gpuhash.cli import main  # noqa: PLC0415 - what is missing shows when it is imported

        main()
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"gpuhash: error: {error}; the command needs: pip install numpy numba typer rich"
        ) from None


if __name__ == "__main__":
    run()
