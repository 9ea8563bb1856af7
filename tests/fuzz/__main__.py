"""Fuzz with atheris for a limited time: `python -m tests.fuzz TARGET --seconds 60`, or `make fuzz`.

Each target runs in a process of its own, since the fuzzer ends the process it runs in. The inputs that it
finds useful stay in .cache/fuzz/TARGET/corpus, and the next run starts from them. An input that makes a
target fail is kept in .cache/fuzz/TARGET.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import structlog

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "fuzz"
NAMES = ("transaction", "block", "coinbase", "event", "segment", "sealed", "mempool_sync")
LONGEST_BYTES = 20_000


def main() -> int:
    """Fuzz the named targets, or all, each for an equal share of the time; return 1 when one fails."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(NAMES)}; all unless given")
    parser.add_argument("--seconds", type=int, default=60, help="for all of them together")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(NAMES)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    names = arguments.targets or list(NAMES)
    share_s = max(1, arguments.seconds // len(names))
    broken = [name for name in names if not _run(name, share_s)]
    for name in broken:
        print(f"{name} broke; run again with the input named above as its only argument after the target")
    return bool(broken)


def _run(name: str, seconds: int) -> bool:
    folder = CACHE / name
    (folder / "corpus").mkdir(parents=True, exist_ok=True)
    _write_seeds(name, folder / "corpus")
    limits = [f"-max_total_time={seconds}", f"-max_len={LONGEST_BYTES}", "-timeout=20", "-rss_limit_mb=4096"]
    options = [
        *limits,
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
        "-verbosity=0",
        "-close_fd_mask=0",
    ]
    command = [sys.executable, __file__, "--inside", name, *options, str(folder / "corpus")]
    print(f"{name}: {seconds} s", flush=True)
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    return done.returncode == 0


def _write_seeds(name: str, corpus: Path) -> None:
    from tests.fuzz.seeds import seeds

    folder = Path(os.environ.get("POOL_TEST_DATA", ROOT.parent / "shared" / "data"))
    for number, seed in enumerate(seeds(folder if folder.is_dir() else None)[name]):
        (corpus / f"seed-{number}").write_bytes(seed)


def _fuzz(name: str, options: list[str]) -> None:
    import atheris

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    # A compiler takes no instrumented code.
    compiled = [f"collector.codec.{path.stem}" for path in (ROOT / "collector" / "codec").glob("*.py")]
    with atheris.instrument_imports(include=["collector"], exclude=compiled):
        from collector.codec.rows import warm_up
        from tests.fuzz.targets import TARGETS
    warm_up()  # else the first block would wait for a compiler, and be taken for one that hangs
    atheris.Setup([name, *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        _fuzz(sys.argv[2], sys.argv[3:])
    sys.exit(main())
