"""Build the wheel, install it where there is nothing else, and run the product there: `make wheel`.

    python -m tests.wheel [--keep FOLDER]

The environment and the folder in which the commands run are empty, so nothing of the checkout can help. The
demo needs a bitcoind as in `make demo`. The size of each package is printed. Status 1 with the output of the
first command that fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import urllib.request
import venv
from pathlib import Path

from collector.regtest.ports import free_ports

ROOT = Path(__file__).resolve().parents[1]
COMMANDS = (
    "gpuhash check --backend cpu --messages 20000",
    "pool-collector demo --out demo",
    "pool-collector check demo/dataset",
    "pool-analysis build --dataset demo/dataset --pools demo/pools --database demo.duckdb",
    "pool-analysis report --database demo.duckdb --out report.html",
    "pool-analysis mempool --database demo.duckdb --limit 3",
    "pool-analysis build --dataset demo/dataset --database own-rules.duckdb",
)
PAGES = (
    "/",
    "/pools",
    "/mempool",
    "/questions/share",
    "/static/serve.js",
    "/metrics",
    "/api/v1/blocks?limit=1",
)
LISTED_MB = 5  # smaller packages are summed up


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout into a folder and return its path."""
    subprocess.run(
        [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def size_mb(path: Path) -> float:
    """Return how much a file or a folder holds, in MB of 1,000,000 bytes; links count nothing."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files if not file.is_symlink()) / 1e6


def print_sizes(environment: Path) -> None:
    """Print the size of an environment, and of its largest packages."""
    (packages,) = environment.glob("lib/python3*/site-packages")
    sizes = sorted(((size_mb(each), each.name) for each in packages.iterdir()), reverse=True)
    for size, name in sizes:
        if size >= LISTED_MB:
            print(f"{size:8.1f} MB  {name}")
    print(f"{sum(size for size, _ in sizes if size < LISTED_MB):8.1f} MB  everything smaller")
    print(f"{size_mb(environment):8.1f} MB  in all, with pip")


def run(command: list[str | Path], folder: Path) -> None:
    """Run one command; leave with its output where it fails."""
    print("$", *(part.name if isinstance(part, Path) else part for part in command), flush=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}status {done.returncode}")


def try_pages(program: Path, folder: Path) -> None:
    """Serve the demo, ask for some pages, and stop; leave with what it wrote where that fails."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [program, "serve", "--database", "demo.duckdb", "--address", address]
    print("$", program.name, *command[1:], flush=True)
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        try:
            assert server.stdout is not None
            print(server.stdout.readline().strip())  # it is said when connections wait to be accepted
            for page in PAGES:
                with urllib.request.urlopen(f"http://{address}{page}", timeout=60) as answer:
                    print(f"{len(answer.read()):8} bytes  {page}")
        finally:
            server.terminate()
        if server.wait():
            sys.exit(f"serve ended with status {server.returncode}")


def try_wheel(folder: Path) -> None:
    """Do everything in a folder: build, install, measure, run."""
    wheel = build_wheel(folder)
    environment, here = folder / "environment", folder / "here"
    here.mkdir()
    venv.create(environment, with_pip=True)
    run([environment / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", wheel], here)
    print_sizes(environment)
    for command in COMMANDS:
        program, *arguments = command.split()
        run([environment / "bin" / program, *arguments], here)
    try_pages(environment / "bin" / "pool-analysis", here)
    print(f"report: {size_mb(here / 'report.html'):.1f} MB; every command of the wheel works on its own")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="empty folder for everything that is made, kept at the end")
    keep = parser.parse_args().keep
    if keep is not None:
        keep.mkdir(parents=True)
        try_wheel(keep.resolve())
        return
    with tempfile.TemporaryDirectory() as folder:
        try_wheel(Path(folder))


if __name__ == "__main__":
    main()
