"""Define the commands of gpuhash that measure, and that compare measurements: bench, results and sweep."""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from gpuhash.measure import stages

MOST_MESSAGES: Final = 1 << 30
DAY_S: Final = 86_400


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
        list[int] | None, typer.Option(min=1, max=MOST_MESSAGES, help="Messages per call; may be repeated.")
    ] = None,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Measure a grid of message and batch sizes; say who wins where.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.01, max=DAY_S, help="Time per stage, about.")] = 1.0,
    energy_seconds: Annotated[
        float,
        typer.Option(min=0, max=DAY_S, help="Window of an energy measurement, and idle before; 0: none."),
    ] = 5.0,
    with_peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="Run hashcat and openssl, if here, in turn with ours.")
    ] = True,
    json: Annotated[Path | None, typer.Option(help="Write results as JSON.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write results as CSV.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw results as SVG.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="BEFORE AFTER", help="Compare two JSON files instead of measuring."),
    ] = None,
) -> None:
    """Verify, then time: kernel, device resident, end to end; speed, energy, share of the limit."""
    from gpuhash.measure import bench_run

    if compare is not None:
        bench_run.compare(*compare)
        return
    files = bench_run.Files(json=json, csv=csv, plot=plot_file)
    files.require()
    chosen = bench_run.algorithms_for(algorithm_names)
    names = bench_run.backends_for(backend)
    grid = bench_run.grid_of(chosen)
    cases = grid if sizes else bench_run.cases_of(chosen, names, message_bytes, batch)
    beside = chosen if with_peers else []
    measured = bench_run.measure(
        cases, names, beside, seconds=seconds, energy_window_s=energy_seconds, keep=files.keep
    )
    bench_run.print_results(measured)
    files.write(measured)


def results(
    paths: Annotated[
        list[Path], typer.Argument(help="Files of `gpuhash bench --json`, or folders of such files.")
    ],
    *,
    algorithm: Annotated[str | None, typer.Option(help="Show only this algorithm, or header-search.")] = None,
    stage: Annotated[str | None, typer.Option(help="Show only this stage, such as kernel.")] = None,
    price_per_hour: Annotated[
        list[str] | None,
        typer.Option(
            help="What an hour of a machine costs: 2.5, or name=2.5 for name.json; may be repeated.",
            metavar="PRICE",
        ),
    ] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw a chart as SVG.")] = None,
) -> None:
    """Compare benchmarks of many machines; refuse what was changed, not verified or has another form."""
    from gpuhash.measure import results_run

    results_run.run(
        paths, algorithm=algorithm, stage=stage, price_texts=price_per_hour or [], plot_file=plot_file
    )


def sweep(
    *,
    allow_clock_changes: Annotated[
        bool, typer.Option("--allow-clock-changes", help="The GPU is yours alone: lock and reset its clocks.")
    ] = False,
    gpu: Annotated[int, typer.Option(min=0, help="Number of the GPU, as gpuhash info lists it.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Clocks to measure, evenly over those supported.")] = 8,
    window_s: Annotated[
        float, typer.Option("--seconds", min=1, max=DAY_S, help="Time per clock, and as long idle.")
    ] = 10.0,
) -> None:
    """Measure energy per hash of the header search at several clocks of a GPU, then restore them."""
    import numpy as np
    from rich.console import Console

    from gpuhash import cuda_device
    from gpuhash.measure import energy, stages, tables
    from gpuhash.measure import sweep as clock_sweep

    # The sweep is refused before NVML is loaded and a GPU is opened.
    if not allow_clock_changes:
        clock_sweep.refuse()
    nvml = energy.load_nvml()
    device = cuda_device.device(gpu)

    @cache
    def stage() -> "stages.Stage":
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
