"""Define the commands of gpuhash that measure: bench and sweep."""

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from gpuhash import cuda_device
from gpuhash.backend import choose
from gpuhash.errors import BackendUnavailableError, GpuhashError, InvalidInputError
from gpuhash.measure import bench as benchmark
from gpuhash.measure import energy, machine, peers, plot, report, stages, tables
from gpuhash.measure import sweep as clock_sweep
from gpuhash.measure.bench import SEARCH, Case, Result
from gpuhash.reference import Algorithm, algorithm

BLOCK_TRANSACTIONS = 2500
DEFAULT_BATCHES = (1000, 100_000)
SIZES = (32, 64, 136, 512, 4096, 65_536, 1 << 20)
SIZE_BATCHES = (1, 16, 256, 4096, 65_536)
MOST_BYTES = 1 << 26  # most bytes of a batch in the grid of sizes
WIDTH = 200  # of tables, whatever the width of the terminal


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The files that results are written to; None for a format that the user did not ask for."""

    json: Path | None
    csv: Path | None
    plot: Path | None

    def require(self) -> None:
        """Open every file for writing, before a long measurement; raise GpuhashError if one fails."""
        if self.plot is not None:
            plot.require(self.plot)
        for path in (self.json, self.csv, self.plot):
            try:
                if path is not None:
                    path.open("a").close()
            except OSError as error:
                raise GpuhashError(f"cannot write {path}: {error.strerror}") from error

    def write(self, results: list[Result], beside: list[peers.PeerResult]) -> None:
        """Write the results, and the comparisons with other programs, to the files."""
        if self.json is not None:
            self.json.write_text(report.to_json(machine.describe(), results, beside))
        if self.csv is not None:
            self.csv.write_text(report.to_csv(results))
        if self.plot is not None:
            plot.write_svg(results, self.plot)


def bench(
    *,
    backend: Annotated[
        list[str] | None,
        typer.Option(help="cpu, cuda or reference; may be repeated. Default: all."),
    ] = None,
    algorithm_names: Annotated[
        list[str] | None, typer.Option("--algorithm", help="Algorithm or header-search; may be repeated.")
    ] = None,
    message_bytes: Annotated[int, typer.Option(min=0, help="Bytes per message.")] = 64,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Messages per call; may be repeated.")
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Measure a grid of message and batch sizes; say who wins where.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time per stage, about.")] = 1.0,
    energy_seconds: Annotated[
        float, typer.Option(min=0, help="Window of an energy measurement, and idle before it; 0: none.")
    ] = 5.0,
    with_peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Run hashcat and openssl, if here, in turn with ours.")
    ] = True,
    json: Annotated[Path | None, typer.Option(help="Write results as JSON.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write results as CSV.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw results as SVG.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Compare two JSON files instead of measuring.")
    ] = None,
) -> None:
    """Verify, then time: kernel, device resident, end to end; speed, energy, share of the limit."""
    if compare is not None:
        _compare(*compare)
        return
    files = _Files(json=json, csv=csv, plot=plot_file)
    files.require()
    names = _backends(backend)
    chosen = algorithm_names or [SEARCH, *Algorithm]
    cases = _grid(chosen) if sizes else _cases(chosen, names, message_bytes, tuple(batch or DEFAULT_BATCHES))
    results = list(benchmark.run(cases, names, seconds=seconds, energy_window_s=energy_seconds))
    beside = list(_peers(chosen, names)) if with_peers else []
    _print(results, beside, energy_wanted=energy_seconds > 0)
    files.write(results, beside)


def sweep(
    *,
    allow_clock_changes: Annotated[
        bool, typer.Option("--allow-clock-changes", help="The GPU is yours alone: lock and reset its clocks.")
    ] = False,
    gpu: Annotated[int, typer.Option(min=0, help="Number of the GPU, as gpuhash info lists it.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Clocks to measure, evenly over those supported.")] = 8,
    window_s: Annotated[
        float, typer.Option("--seconds", min=1, help="Time per clock, and as long idle.")
    ] = 10.0,
) -> None:
    """Measure energy per hash of the header search at several clocks of a GPU, then restore them."""
    # The sweep is refused before NVML is loaded and a GPU is opened.
    if not allow_clock_changes:
        clock_sweep.refuse()
    nvml = energy.load_nvml()
    device = cuda_device.device(gpu)

    @cache
    def stage() -> stages.Stage:
        header = np.random.default_rng(1).bytes(80)
        return stages.cuda_search(device, header, stages.SEARCH_NONCES["cuda"])[0]

    def work() -> int:
        stage().work()
        stage().wait()
        return stage().hashes

    done = clock_sweep.sweep(
        nvml,
        work,
        allow_clock_changes=allow_clock_changes,
        pci_bus_id=device.pci_bus_id,
        steps=steps,
        window_s=window_s,
    )
    Console(width=120).print(tables.of_sweep(done))
    best = "the default" if done.best.locked_mhz is None else f"{done.best.locked_mhz} MHz"
    typer.echo(f"least energy per hash at {best}: {done.saving_ratio:.1%} less than at the default")


def _compare(before: Path, after: Path) -> None:
    lines = report.compare(report.load(before), report.load(after))
    if not lines:
        raise InvalidInputError(f"{before} and {after} measured nothing in common")
    Console(width=WIDTH).print(tables.of_comparison(lines))


def _print(results: list[Result], beside: list[peers.PeerResult], *, energy_wanted: bool) -> None:
    console = Console(width=WIDTH)
    console.print(tables.of_results(results))
    if all(result.joules_per_hash is None for result in results):
        reason = "no counter can be read here" if energy_wanted else "not measured"
        typer.echo(f"energy per hash: {tables.UNKNOWN}, {reason}")
    for formula in dict.fromkeys(result.limit_formula for result in results if result.limit_formula):
        typer.echo(f"limit: hashes/s = {formula}")
    for line in tables.of_crossovers(report.crossovers(results)):
        typer.echo(line)
    if beside:
        console.print(tables.of_peers(beside))


def _backends(asked: list[str] | None) -> list[str]:
    if asked:
        return [choose(name).name for name in asked]
    names = ["cpu"]
    try:
        choose("cuda")
        names.append("cuda")
    except BackendUnavailableError as missing:
        typer.echo(f"without cuda: {missing}", err=True)
    return names


def _cases(
    chosen: list[str], names: list[str], message_bytes: int, batches: tuple[int, ...]
) -> Iterator[Case]:
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


def _grid(chosen: list[str]) -> Iterator[Case]:
    for name in chosen:
        if name == SEARCH:
            continue
        for message_bytes in SIZES:
            for count in SIZE_BATCHES:
                if message_bytes * count <= MOST_BYTES:
                    yield Case(algorithm=algorithm(name), count=count, message_bytes=message_bytes)


def _peers(chosen: list[str], names: list[str]) -> Iterator[peers.PeerResult]:
    for backend in names:
        if backend == "reference":
            continue
        for name in peers.with_peers(chosen):
            which = None if name == SEARCH else algorithm(name)
            ours = partial(_kernel_rate, stages.beside_peer(backend, which))
            for result in (
                peers.beside_hashcat(name, backend, ours),
                peers.beside_openssl(name, backend, stages.PEER_BYTES, ours),
            ):
                if result is not None:
                    yield result


def _kernel_rate(stage: stages.Stage) -> float:
    """Measure and return the hashes per second of a stage: the median of a few calls."""
    times = benchmark.time_together([stage], seconds=2.0)[0]
    return stage.hashes / statistics.median(times)
