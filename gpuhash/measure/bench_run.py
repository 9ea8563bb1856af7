"""Carry out what the command `gpuhash bench` asks for: choose cases, write files, print tables."""

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from gpuhash import reference
from gpuhash.backend import choose
from gpuhash.errors import BackendUnavailableError, GpuhashError, InvalidInputError, UnknownAlgorithmError
from gpuhash.measure import bench as benchmark
from gpuhash.measure import document, machine, peers, plot, report, stages, tables, whole_file
from gpuhash.measure.bench import SEARCH, Case, Result
from gpuhash.measure.conditions import Conditions, Watch
from gpuhash.measure.document import Method
from gpuhash.reference import Algorithm, algorithm

BLOCK_TRANSACTIONS = 2500
DEFAULT_BATCHES = (1000, 100_000)
GPU_BATCH = 1 << 22  # of 64 bytes; fills a GPU for about a millisecond
MOST_GPU_BATCH_BYTES = 1 << 28
SIZES = (32, 64, 136, 512, 4096, 65_536, 1 << 20)
SIZE_BATCHES = (1, 16, 256, 4096, 65_536)
MOST_BYTES = 1 << 26  # most bytes of a batch in the grid of sizes
WIDTH = 200  # of tables, whatever the width of the terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Holds the paths that results are written to; None for a format that the user did not ask for."""

    json: Path | None
    csv: Path | None
    plot: Path | None

    def require(self) -> None:
        """Check, before a long measurement, that every file can be written; raise GpuhashError if not."""
        if self.plot is not None:
            plot.require(self.plot)
        for path in (self.json, self.csv, self.plot):
            if path is not None:
                whole_file.require(path)

    def write(self, measured: "Measured") -> None:
        """Write the results of a benchmark to these files, each in its format: JSON, CSV or a plot."""
        if self.json is not None:
            text = document.to_json(
                machine.describe(), measured.conditions, measured.method, measured.results, measured.beside
            )
            whole_file.write(self.json, text)
        if self.csv is not None:
            whole_file.write(self.csv, report.to_csv(measured.results))
        if self.plot is not None:
            plot.write_svg(measured.results, self.plot)

    def keep(self, measured: "Measured") -> None:
        """Write what was measured so far to those of the JSON and the CSV file that are replaced later."""
        json, csv = (
            path if path and whole_file.is_replaced(path) else None for path in (self.json, self.csv)
        )
        Files(json=json, csv=csv, plot=None).write(measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Holds all that one benchmark gave: results, other programs' results, conditions and method."""

    results: list[Result]
    beside: list[peers.PeerResult]  # comparisons with other programs
    conditions: Conditions
    method: Method


def compare(before: Path, after: Path) -> None:
    """Print how the results in the JSON file `after` differ from those in `before`.

    Raises InvalidInputError if they have nothing in common.
    """
    lines = report.compare(document.read(before).results, document.read(after).results)
    if not lines:
        raise InvalidInputError(f"{before} and {after} measured nothing in common")
    Console(width=WIDTH).print(tables.of_comparison(lines))


def measure(
    cases: Iterable[Case],
    names: list[str],
    peers_of: list[str],
    *,
    seconds: float,
    energy_window_s: float,
    keep: Callable[[Measured], None] = lambda _: None,
) -> Measured:
    """Verify and time the cases on the backends `names`, and other programs for the algorithms `peers_of`.

    Returns all results, with the conditions of the machine and the method. After each case its name is shown
    on standard error, and `keep` is called with the results so far, so that a benchmark that is stopped
    leaves them. Raises InvalidInputError if there was nothing to measure.
    """
    watch = Watch()
    method = document.method_of(seconds, energy_window_s)
    results: list[Result] = []
    every = list(cases)
    for number, case in enumerate(every, 1):
        results += benchmark.run([case], names, seconds=seconds, energy_window_s=energy_window_s)
        keep(Measured(results=list(results), beside=[], conditions=watch.conditions(), method=method))
        typer.echo(f"{number} of {len(every)}: {case.title}", err=True)
    if not results:
        raise InvalidInputError(
            "nothing was measured: a header search has no grid of sizes; leave out --sizes"
        )
    conditions = watch.conditions()
    return Measured(
        results=results,
        beside=list(measure_peers(peers_of, names)),
        conditions=conditions,
        method=method,
    )


def print_results(measured: Measured) -> None:
    """Print the results as a table, the formula of each limit, and the comparisons with other programs."""
    results, beside = measured.results, measured.beside
    energy_wanted = measured.method.energy_window_s > 0
    console = Console(width=WIDTH)
    console.print(tables.of_results(results))
    if all(result.joules_per_hash is None for result in results):
        reason = "no counter can be read here" if energy_wanted else "not measured"
        typer.echo(f"energy per hash: {tables.UNKNOWN}, {reason}")
    if reference.pycryptodome is None and any(result.algorithm == Algorithm.KECCAK256 for result in results):
        typer.echo("x ref of keccak256: its reference is plain Python here, as pycryptodome is not installed")
    for formula in dict.fromkeys(result.limit_formula for result in results if result.limit_formula):
        typer.echo(f"limit: hashes/s = {formula}")
    for line in tables.of_crossovers(report.crossovers(results)):
        typer.echo(line)
    if beside:
        console.print(tables.of_peers(beside))


def backends_for(asked: list[str] | None) -> list[str]:
    """Return the names of the backends to measure: those asked for, or else all that this machine has."""
    if asked:
        return [choose(name).name for name in asked]
    names = ["cpu"]
    try:
        choose("cuda")
        names.append("cuda")
    except BackendUnavailableError as missing:
        typer.echo(f"without cuda: {missing}", err=True)
    return names


def algorithms_for(asked: list[str] | None) -> list[str]:
    """Return the names of what to measure: those asked for, or else all there are.

    Raises UnknownAlgorithmError, which names all, for a name that does not exist.
    """
    known = [SEARCH, *Algorithm]
    for name in asked or []:
        if name not in known:
            raise UnknownAlgorithmError(f"no algorithm {name!r}; choose one of {', '.join(known)}")
    return asked or known


def cases_of(
    chosen: list[str], names: list[str], message_bytes: int, asked_batches: list[int] | None
) -> Iterator[Case]:
    """Yield the benchmark cases for the `chosen` algorithms, one for each size of a batch.

    Without batches asked for, they are those of DEFAULT_BATCHES. Where a GPU is measured there is GPU_BATCH
    too, unless its messages are too long for that. Raises MemoryError for what no machine addresses.
    """
    gpu_is_filled = "cuda" in names and GPU_BATCH * message_bytes <= MOST_GPU_BATCH_BYTES
    batches = asked_batches or [*DEFAULT_BATCHES, *([GPU_BATCH] if gpu_is_filled else [])]
    if max(batches) * message_bytes >= 1 << 62:  # no array can be as large, which NumPy says in other words
        raise MemoryError(f"a batch of {max(batches)} messages of {message_bytes} bytes")
    for name in chosen:
        if name == SEARCH:
            count = max(stages.SEARCH_NONCES[backend] for backend in names)
            yield Case(algorithm=SEARCH, count=count, message_bytes=80)
            continue
        which = algorithm(name)
        for count in batches:
            yield Case(algorithm=which, count=count, message_bytes=message_bytes)
        if which is Algorithm.SHA256D:  # the txids of a block
            yield Case(algorithm=which, count=BLOCK_TRANSACTIONS, message_bytes=0, mixed=True)


def grid_of(chosen: list[str]) -> Iterator[Case]:
    """Yield a benchmark case for each size of message and of batch, for each of the `chosen` algorithms."""
    for name in chosen:
        if name == SEARCH:
            continue
        for message_bytes in SIZES:
            for count in SIZE_BATCHES:
                if message_bytes * count <= MOST_BYTES:
                    yield Case(algorithm=algorithm(name), count=count, message_bytes=message_bytes)


def measure_peers(chosen: list[str], names: list[str]) -> Iterator[peers.PeerResult]:
    """Run hashcat and openssl, where they are installed, in turn with ours; yield the speed of each.

    A program that gives no speed is named on standard error, and the others are run all the same.
    """
    for backend in names:
        if backend == "reference":
            continue
        for name in peers.with_peers(chosen):
            which = None if name == SEARCH else algorithm(name)
            ours = partial(_kernel_rate, stages.beside_peer(backend, which))
            for beside in (
                partial(peers.beside_hashcat, name, backend, ours),
                partial(peers.beside_openssl, name, backend, stages.PEER_BYTES, ours),
            ):
                try:
                    result = beside()
                except GpuhashError as error:
                    typer.echo(f"{name} on {backend} is not compared: {error}", err=True)
                    continue
                if result is not None:
                    yield result


def _kernel_rate(stage: stages.Stage) -> float:
    """Measure a stage by a few calls; return its hashes per second, by the median call."""
    times = benchmark.time_together([stage], seconds=2.0)[0]
    return stage.hashes / statistics.median(times)
