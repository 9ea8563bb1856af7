"""Take the chart library of the pages from npm, as its lock pins it: `make charts`.

    python -m tests.chart_library

The files lie in analysis/serve/uplot, so that neither an installation nor a page needs npm or a network. npm
compares what it gets with the hash in package-lock.json. For another version change package.json, run
`npm install --package-lock-only --omit-lockfile-registry-resolved` there, and this again.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

LIBRARY: Final = Path(__file__).resolve().parents[1] / "analysis" / "serve" / "uplot"
LOCKED: Final = ("package.json", "package-lock.json")
FILES: Final = ("dist/uPlot.iife.min.js", "dist/uPlot.min.css", "LICENSE")


def fetch(folder: Path) -> list[Path]:
    """Install the library into an empty folder with npm; return the paths of the files that we keep."""
    for name in LOCKED:
        shutil.copy(LIBRARY / name, folder)
    subprocess.run(
        ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=0"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    return [folder / "node_modules" / "uplot" / name for name in FILES]


def main() -> None:
    """Fetch the library and put its files in their place."""
    with tempfile.TemporaryDirectory() as folder:
        for path in fetch(Path(folder)):
            shutil.copyfile(path, LIBRARY / path.name)
            print(f"{path.stat().st_size:8} bytes  {path.name}")


if __name__ == "__main__":
    main()
