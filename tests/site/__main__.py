"""Build the site of the documents: `make site`.

    python -m tests.site [--out FOLDER] [--demo FOLDER]

The pages are the Markdown files of the repository at their own places, beside those of `pages/`. A file that
they link to is copied; a link to a folder becomes plain text. Pictures are taken of the demo's report and of
its pages by headless Chromium; without the demo or the browser they are left out, and a line says so. mkdocs
runs with --strict, so a link that leads nowhere is an error. Search needs a server of files:
`python3 -m http.server --directory build/site`.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from collector.regtest.ports import free_ports

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CONFIG = HERE / "mkdocs.yaml"
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>(?!https?:|mailto:|#)[^)#\s]+)(?P<anchor>#[^)]*)?\)")
PICTURE = re.compile(r"<!-- picture (?P<file>\S+): (?P<words>.*?) -->")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WINDOW = "1280,900"
REPORT_PICTURE = "report.png"
# The pages in pictures; {height} is a block with transactions, {pool} the largest pool.
PAGE_PICTURES = {
    "now.png": "/",
    "pool.png": "/pools/{pool}",
    "block.png": "/blocks/{height}",
    "mempool.png": "/mempool",
}
PROGRAM = ROOT / ".venv" / "bin" / "pool-analysis"  # this environment has mkdocs alone


def pages() -> dict[str, Path]:
    """Return every page: its place on the site and the file that it is made of."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    found = {name: ROOT / name for name in listed if not name.startswith(("tests/", "."))}
    return found | {path.name: path for path in sorted((HERE / "pages").glob("*.md"))}


def gather(docs: Path, pictures: Path | None) -> None:
    """Copy the pages, and the files that they link to, into the folder that mkdocs reads."""
    known = pages()
    for name, source in known.items():
        target = docs / name
        target.parent.mkdir(parents=True, exist_ok=True)

        def linked(link: re.Match[str], base: Path = ROOT / name) -> str:
            return _linked(link, base.parent, docs, known)

        text = LINK.sub(linked, source.read_text(encoding="utf-8"))
        target.write_text(PICTURE.sub(lambda match: _picture(match, docs, pictures), text), encoding="utf-8")


def _linked(link: re.Match[str], folder: Path, docs: Path, known: dict[str, Path]) -> str:
    """Return a link as it stands on the site; copy the file that it leads to where that is no page."""
    path = (folder / link["path"]).resolve()
    name = path.relative_to(ROOT).as_posix()
    if name in known:
        return link[0]
    if path.is_file():
        (docs / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, docs / name)
        return link[0]
    return link["text"] if path.is_dir() else link[0]


def _picture(match: re.Match[str], docs: Path, pictures: Path | None) -> str:
    """Return the picture that a page asks for, or nothing where there is none."""
    if pictures is None or not (pictures / match["file"]).is_file():
        return ""
    shutil.copyfile(pictures / match["file"], docs / match["file"])
    return f"![{match['words']}]({match['file']})"


def take_pictures(demo: Path, folder: Path) -> Path | None:
    """Take pictures of the demo's report and pages; None where there is no demo or no browser."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    report, database = demo / "report.html", demo / "demo.duckdb"
    if browser is None or not PROGRAM.is_file() or not (report.is_file() and database.is_file()):
        print("no pictures: they need chromium and the report of `make demo`")
        return None
    command = [browser, "--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={WINDOW}"]

    def take(name: str, address: str) -> None:
        picture = f"--screenshot={folder / name}"
        subprocess.run([*command, picture, address], check=True, capture_output=True)

    take(REPORT_PICTURE, report.resolve().as_uri())
    with served(database) as site:
        pools, blocks = _data(f"{site}/api/v1/pools?window=all"), _data(f"{site}/api/v1/blocks?limit=100")
        (pool, *_) = [each["pool"] for each in pools if not each["is_unknown"]]
        (height, *_) = [each["height"] for each in blocks if each["pool"] == pool and not each["is_empty"]]
        for name, path in PAGE_PICTURES.items():
            take(name, site + path.format(pool=pool, height=height))
    return folder


@contextmanager
def served(database: Path) -> Iterator[str]:
    """Serve a database, and give the address of its pages."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    command = [PROGRAM, "serve", "--database", database, "--address", address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()  # said when connections wait to be accepted
            yield f"http://{address}"
        finally:
            server.terminate()


def _data(address: str) -> list[dict[str, Any]]:
    """Return the rows of an answer of the API."""
    with urllib.request.urlopen(address, timeout=120) as answer:  # noqa: S310 - our own server
        found: list[dict[str, Any]] = json.load(answer)["data"]
    return found


def build(out: Path, demo: Path) -> None:
    """Build the site into a folder; exit with the words of mkdocs where it finds a fault."""
    with tempfile.TemporaryDirectory() as scratch:
        docs, pictures = Path(scratch, "docs"), Path(scratch, "pictures")
        docs.mkdir()
        pictures.mkdir()
        gather(docs, take_pictures(demo, pictures))
        config = yaml.safe_load(CONFIG.read_text()) | {"docs_dir": str(docs), "site_dir": str(out.resolve())}
        Path(scratch, "mkdocs.yml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
        done = subprocess.run([*command, "--config-file", Path(scratch, "mkdocs.yml")], check=False)
    if done.returncode:
        sys.exit(done.returncode)
    print(f"site: {out / 'index.html'}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Build the site of the documents.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder of the site")
    parser.add_argument("--demo", type=Path, default=ROOT / "data" / "demo", help="folder of the demo")
    given = parser.parse_args()
    build(given.out, given.demo)


if __name__ == "__main__":
    main()
