"""Run the command line, as `gpuhash` or python -m gpuhash."""

import sys


def run() -> None:
    """Run the command `gpuhash`; on a bare machine, name the packages to install if one is missing."""
    # numba looks once for SciPy's linear algebra, which takes a fifth of a second; it does without.
    sys.modules.setdefault("scipy.linalg.cython_blas", None)  # type: ignore[arg-type]
    try:
        from gpuhash.cli import main  # noqa: PLC0415 - what is missing shows when it is imported

        main()
    except ModuleNotFoundError as error:
        raise SystemExit(
            f"gpuhash: error: {error}; the command needs: pip install numpy numba typer rich"
        ) from None


if __name__ == "__main__":
    run()
