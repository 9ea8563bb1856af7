"""Format results as tables for a terminal of 80 columns; an unknown figure is n/a, never 0."""

from collections.abc import Iterable, Sequence

from rich.table import Table

from gpuhash.measure.bench import Result
from gpuhash.measure.ceiling import CpuBounds
from gpuhash.measure.limits import Limit
from gpuhash.measure.peers import PeerResult
from gpuhash.measure.report import Comparison, Crossover
from gpuhash.measure.submissions import Line, Submission
from gpuhash.measure.sweep import Point, Sweep

UNKNOWN = "n/a"
MOST_WITH_DECIMALS = 999.95  # above it four digits leave none after the point
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def of_results(results: Sequence[Result]) -> Table:
    """Return a table of benchmark results, a line per stage of each case; energy only if one is known."""
    names = ["algorithm", "bytes", "batch", "backend", "stage", "hashes/s", "bytes/s", "x ref", "of limit"]
    if any(result.joules_per_hash is not None for result in results):
        names += ["nJ/hash", "net nJ/hash", "W", "MHz"]
    rows = [
        (
            result.algorithm,
            f"{'~' if result.mixed else ''}{result.message_bytes}",
            str(result.count),
            result.backend,
            result.stage,
            _rate(result.hashes_per_s),
            _rate(result.gigabytes_per_s * 1e9),
            _number(result.ratio_to_reference, 2),
            _percent(result.share_of_limit),
            _number(_nano(result.joules_per_hash), 1),
            _number(_nano(result.net_joules_per_hash), 1),
            _number(result.mean_w, 0),
            _number(result.clock_mhz, 0),
        )[: len(names)]
        for result in results
    ]
    return _table(names, rows, left=("algorithm", "backend", "stage"))


def of_peers(peers: Iterable[PeerResult]) -> Table:
    """Return a table of the speeds of other programs and of ours, which ran in turn."""
    rows = [
        (
            peer.algorithm,
            peer.backend,
            peer.peer,
            _rate(peer.hashes_per_s),
            _rate(peer.peer_hashes_per_s),
            _number(peer.ratio, 3),
            str(peer.rounds),
        )
        for peer in peers
    ]
    names = ("algorithm", "backend", "peer", "hashes/s", "peer's", "ratio", "rounds")
    return _table(names, rows, left=names[:3])


def of_peer_lines(lines: Iterable[tuple[str, PeerResult]]) -> Table:
    """Return a table with a line per comparison with another program, each under the name of its file."""
    rows = [
        (
            peer.algorithm,
            peer.peer,
            name,
            peer.backend,
            _rate(peer.hashes_per_s),
            _rate(peer.peer_hashes_per_s),
            _number(peer.ratio, 3),
            str(peer.rounds),
        )
        for name, peer in lines
    ]
    names = ("algorithm", "peer", "file", "backend", "hashes/s", "peer's", "ratio", "rounds")
    return _table(names, rows, left=names[:4])


def of_machines(submissions: Iterable[Submission]) -> Table:
    """Return a table with a line per accepted benchmark file: on what machine and when it was made."""
    rows = []
    for submission in submissions:
        machine, conditions = submission.benchmark.machine, submission.benchmark.conditions
        gpus = "; ".join(gpu.split(", compute capability")[0] for gpu in machine.gpus)
        sources = {result.power_source for result in submission.benchmark.results} - {""}
        rows.append(
            (
                submission.name,
                machine.cpu,
                f"{machine.cpu_threads} of {machine.cpu_count}",
                str(machine.vector_bits),
                gpus or "none",
                machine.gpu_driver or UNKNOWN,
                ", ".join(sorted(sources)) or UNKNOWN,
                _percent(conditions.busy_elsewhere_ratio),
                conditions.begun_at[:10],
            )
        )
    names = ("file", "CPU", "threads", "bits", "GPU", "driver", "energy from", "other load", "made on")
    return _table(names, rows, left=("file", "CPU", "GPU", "energy from"))


def of_lines(lines: Sequence[Line]) -> Table:
    """Return a table of the benchmark figures of many machines, a line each; energy and cost if known."""
    names = ["algorithm", "bytes", "batch", "stage", "file", "backend", "hashes/s", "spread", "of limit"]
    energy = any(line.result.joules_per_hash is not None for line in lines)
    priced = any(line.cost is not None for line in lines)
    names += ["nJ/hash", "net nJ/hash"] if energy else []
    names += ["cost of 10^12"] if priced else []
    rows = []
    for line in lines:
        result = line.result
        cells = [
            result.algorithm,
            f"{'~' if result.mixed else ''}{result.message_bytes}",
            str(result.count),
            result.stage,
            line.name,
            result.backend,
            _rate(result.hashes_per_s),
            _percent(result.spread_ratio),
            _percent(result.share_of_limit),
        ]
        if energy:
            joules = (result.joules_per_hash, result.net_joules_per_hash)
            cells += [_number(_nano(value), 1) for value in joules]
        if priced:
            cells.append(UNKNOWN if line.cost is None else _four_digits(line.cost))
        rows.append((*cells, "; ".join(line.broken_rules) or "none"))
    left = ("algorithm", "stage", "file", "backend", "rules broken")
    return _table([*names, "rules broken"], rows, left=left)


def of_comparison(comparisons: Iterable[Comparison]) -> Table:
    """Return a table of the hashes per second of two benchmarks and their ratio."""
    rows = [
        (
            line.algorithm,
            str(line.message_bytes),
            str(line.count),
            line.backend,
            line.stage,
            _rate(line.before_hashes_per_s),
            _rate(line.after_hashes_per_s),
            _number(line.ratio, 3),
        )
        for line in comparisons
    ]
    names = ("algorithm", "bytes", "batch", "backend", "stage", "before", "after", "ratio")
    return _table(names, rows, left=("algorithm", "backend", "stage"))


def of_limits(limits: Iterable[Limit], sm_count: int, clock_mhz: float) -> Table:
    """Return a table of each kernel's modelled limits for a GPU with `sm_count` SMs at a clock in MHz."""
    rows = [
        (
            limit.kernel,
            limit.variant,
            str(limit.instructions.alu),
            str(limit.instructions.fma),
            str(limit.instructions.total),
            str(limit.instructions.reads),
            _number(limit.cycles_per_hash, 2),
            limit.bound_by,
            _number(limit.hashes_per_s(sm_count, clock_mhz) / 1e9, 3),
        )
        for limit in limits
    ]
    names = ("kernel", "variant", "ALU", "FMA", "all", "reads", "cycles/hash", "bound by", "GH/s")
    return _table(names, rows, left=("kernel", "variant", "bound by"))


def of_cpu_bounds(bounds: Iterable[CpuBounds]) -> Table:
    """Return a table of bounds of the CPU in hashes per second, each a model.

    On vector lanes they are what all units allow, what those that shift allow, and what waiting for results
    allows. The last one is what the units allow for SHA instructions, which use no lanes.
    """
    rows = [
        (
            line.name,
            str(line.operations),
            str(line.shifts),
            str(line.chain),
            *(_rate(bound) for bound in (line.by_units, line.by_shifts, line.by_chain)),
            "" if line.by_sha is None else _rate(line.by_sha),
        )
        for line in bounds
    ]
    names = ("kernel", "operations", "shifts", "longest chain")
    rates = ("units: hashes/s", "shifts: hashes/s", "chain: hashes/s", "SHA instructions: hashes/s")
    return _table((*names, *rates), rows, left=("kernel",))


def of_sweep(sweep: Sweep) -> Table:
    """Return a table of energy per hash, a line per clock of a GPU; a star marks the one with the least."""

    def row(point: Point) -> tuple[str, ...]:
        name = "default" if point.locked_mhz is None else str(point.locked_mhz)
        return (
            name + (" *" if point is sweep.best else ""),
            _number(point.clock_mhz, 0),
            _number(point.hashes_per_s / 1e9, 3),
            _number(_nano(point.joules_per_hash), 2),
            _number(point.mean_w, 0),
        )

    return _table(("locked MHz", "MHz seen", "GH/s", "nJ/hash", "W"), map(row, sweep.points), left=())


def of_crossovers(crossovers: Iterable[Crossover]) -> list[str]:
    """Return sentences that say from which batch size one backend is faster than another."""
    lines = []
    for line in crossovers:
        start = "at no batch measured" if line.from_count is None else f"from batches of {line.from_count} on"
        lines.append(f"{line.algorithm}, {line.message_bytes} B: {line.faster} beats {line.slower} {start}")
    return lines


def _table(names: Sequence[str], rows: Iterable[tuple[str, ...]], left: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for name in names:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _number(value: float | None, decimals: int) -> str:
    return UNKNOWN if value is None else f"{value:,.{decimals}f}"


def _rate(value: float) -> str:
    """Format a number per second with four digits and a unit prefix: 73.52 M."""
    scale, unit = next(((scale, unit) for scale, unit in UNITS if value >= scale), (1.0, ""))
    return f"{_four_digits(value / scale)} {unit}".rstrip()


def _four_digits(value: float) -> str:
    """Format a number with four digits, and with all of those before its point: 2.793, 1,496."""
    return f"{value:#.4g}" if value < MOST_WITH_DECIMALS else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.1%}"


def _nano(value: float | None) -> float | None:
    return None if value is None else value * 1e9
