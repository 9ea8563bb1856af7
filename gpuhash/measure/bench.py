"""Time the hashing of all backends, after their digests have been verified.

All stages of a case run in turn, one run of each after the other. What disturbs the machine then disturbs all
stages alike, so ratios are reliable even if single figures are not. A figure is the median of its runs.
A GPU works untimed before each run for as long, because an idle one lowers its clocks.
"""

import logging
import math
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from gpuhash import check
from gpuhash.backend import choose
from gpuhash.cuda_device import devices
from gpuhash.errors import BackendUnavailableError
from gpuhash.measure import ceiling, energy, stages
from gpuhash.measure.stages import Stage
from gpuhash.packing import Messages, pack
from gpuhash.reference import Algorithm

log = logging.getLogger("gpuhash")

LEAST_RUNS = 20
FEWEST_RUNS = 5  # if LEAST_RUNS of slow work would exceed the given time
WARM_UP_CALLS = 2  # of every stage before it is timed; the last one tells how long a call takes
LEAST_RUN_S = 0.0005  # shorter work is repeated within a run
LEAST_GPU_RUN_S = 0.01  # so long a run hides the time that an idle GPU takes to begin
LEAST_ENERGY_RUN_S = 1.0  # the energy counter is read after each run, and the device idles meanwhile
SEARCH = "header-search"
VERIFIED_MESSAGES = 2000
REFERENCE_MESSAGES = 20_000  # the reference hashes no more: the time per message is the same
REFERENCE_S = 0.1  # and fewer where this takes longer, as Keccak-256 does without pycryptodome


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Says what a benchmark hashes: `count` messages of `message_bytes`, or `count` nonces of a header."""

    algorithm: str  # an Algorithm, or header-search
    count: int
    message_bytes: int  # 0 when mixed
    mixed: bool = False  # message lengths are like those of transactions

    @property
    def which(self) -> Algorithm | None:
        """The hash algorithm of this benchmark case; None for a header search."""
        return None if self.algorithm == SEARCH else Algorithm(self.algorithm)

    @property
    def title(self) -> str:
        """What is hashed, in words."""
        if self.which is None:
            return f"{self.algorithm}, {self.count:,} nonces"
        size = "mixed lengths" if self.mixed else f"{self.message_bytes:,} bytes"
        return f"{self.algorithm}, {self.count:,} messages of {size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Holds the figures of one stage of one backend: one line of a benchmark."""

    algorithm: str
    backend: str
    stage: str
    message_bytes: int  # the mean when mixed
    mixed: bool
    count: int  # hashes of one call; the reference may do fewer, at the same speed
    runs: int
    seconds: float  # median of one call of count hashes
    lower_quartile_s: float  # a quarter of the runs took less for one call
    upper_quartile_s: float  # a quarter of the runs took more
    hashes_per_s: float
    gigabytes_per_s: float  # of messages
    ratio_to_reference: float | None = None  # median over runs made one after the other
    limit_hashes_per_s: float | None = None  # the most that the machine can do
    limit_formula: str = ""
    joules_per_hash: float | None = None  # gross; None where no counter can be read
    net_joules_per_hash: float | None = None  # without what the idle device would have used in that time
    mean_w: float | None = None
    clock_mhz: float | None = None
    power_source: str = ""  # the counter that the energy was read from
    verified_hashes: int = 0  # hashes of this backend that equalled the reference's before anything was timed

    @property
    def spread_ratio(self) -> float:
        """The width of the middle half of the runs, divided by their median: how much the speed varied."""
        return (self.upper_quartile_s - self.lower_quartile_s) / self.seconds

    @property
    def share_of_limit(self) -> float | None:
        """The hashes per second divided by the most that the machine can do.

        It is None if that limit is unknown.
        """
        return self.hashes_per_s / self.limit_hashes_per_s if self.limit_hashes_per_s else None


def run(
    cases: Iterable[Case], backends: Iterable[str], *, seconds: float = 1.0, energy_window_s: float = 0.0
) -> Iterator[Result]:
    """Verify and time every case on every backend, and yield a Result for each stage.

    `seconds` is about the longest time spent on a stage. If energy_window_s is above 0, the kernel stage is
    then repeated for that long, after an idle time of the same length, on backends whose energy can be read.
    Raises WrongHashError before anything is timed if a backend gives wrong digests.
    """
    names = list(dict.fromkeys(["reference", *backends]))
    for case in cases:
        yield from _run_case(case, names, seconds, energy_window_s)


def messages_of(case: Case) -> Messages:
    """Return the messages of a benchmark's case; they are random, as a device's power depends on its data."""
    if case.mixed:
        return check.random_messages(case.count, seed=1)
    return np.random.default_rng(1).integers(0, 256, (case.count, case.message_bytes), np.uint8)


def _run_case(case: Case, names: list[str], seconds: float, energy_window_s: float) -> Iterator[Result]:
    verified = {name: _verify(case, name) for name in names}
    timed = [stage for name in names for stage in _stages(case, name)]
    times = time_together(timed, seconds)
    reference = [elapsed / timed[0].hashes for elapsed in times[0]]
    for stage, elapsed in zip(timed, times, strict=True):
        result = replace(_result(case, stage, elapsed), verified_hashes=verified[stage.backend])
        if stage is not timed[0]:
            ratios = [one / (other / stage.hashes) for one, other in zip(reference, elapsed, strict=True)]
            result = replace(result, ratio_to_reference=statistics.median(ratios))
        if stage.name == "kernel" and energy_window_s:
            result = _with_energy(result, stage, energy_window_s)
        yield result


def _verify(case: Case, name: str) -> int:
    """Compare a backend, given by name, with the reference; return how many of its hashes were compared.

    Raises WrongHashError if they differ.
    """
    which = case.which
    if which is None:
        check.compare_search(choose(name), seed=1)
        return check.SEARCHED_NONCES
    messages = _first(messages_of(case), VERIFIED_MESSAGES)
    check.compare(choose(name), which, messages)
    return min(case.count, VERIFIED_MESSAGES)


def _stages(case: Case, name: str) -> list[Stage]:
    """Return the stages (such as the kernel alone) of a benchmark case, to be timed on the backend `name`."""
    which = case.which
    if which is None:
        count = min(case.count, REFERENCE_MESSAGES) if name == "reference" else case.count
        return stages.of_search(name, np.random.default_rng(1).bytes(80), count)
    messages = messages_of(case)
    if name == "reference":
        messages = _first(messages, _reference_count(which, messages))
    return stages.of_batch(name, which, messages)


def _reference_count(which: Algorithm, messages: Messages) -> int:
    """Return how many of the messages the reference hashes in about REFERENCE_S, at least one.

    The faster of two runs counts, so that a machine that stops for a moment does not end the search.
    """

    def taken_s(count: int) -> float:
        begin_s = time.perf_counter()
        check.REFERENCE.hash_batch(which, pack(_first(messages, count)))
        return time.perf_counter() - begin_s

    most = min(pack(messages).count, REFERENCE_MESSAGES)
    count = min(1, most)
    while count < most and (taken_s(count) < REFERENCE_S or taken_s(count) < REFERENCE_S):
        count = min(2 * count, most)
    return count


def _first(messages: Messages, count: int) -> Messages:
    if isinstance(messages, tuple):
        return messages[0], messages[1][: count + 1]
    return messages[:count]


def time_together(timed: list[Stage], seconds: float) -> list[list[float]]:
    """Run the stages of a benchmark in turn; return for each the seconds per call, one number per run.

    `seconds` is about the time to spend per stage.
    """
    repeats = []
    longest = 0.0
    for stage in timed:  # the first call also compiles, allocates and fills caches
        for _ in range(WARM_UP_CALLS - 1):
            stage.work()
            stage.wait()
        once = _time(stage, 1)
        least = LEAST_GPU_RUN_S if stage.backend == "cuda" else LEAST_RUN_S
        repeats.append(max(1, math.ceil(least / once)))
        longest += max(once, least) * (2 if stage.backend == "cuda" else 1)
    runs = min(max(int(seconds * len(timed) / longest), FEWEST_RUNS), 50 * LEAST_RUNS)
    if longest * LEAST_RUNS <= seconds * len(timed):
        runs = max(runs, LEAST_RUNS)
    times: list[list[float]] = [[] for _ in timed]
    for _ in range(runs):
        for stage, repeat, kept in zip(timed, repeats, times, strict=True):
            if (
                stage.backend == "cuda"
            ):  # an idle GPU lowers its clocks, so it first works untimed for as long
                _time(stage, repeat)
            kept.append(_time(stage, repeat) / repeat)
    return times


def _time(stage: Stage, repeat: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeat):
        stage.work()
    stage.wait()
    return time.perf_counter() - begin


def _result(case: Case, stage: Stage, elapsed: list[float]) -> Result:
    lower, median, upper = statistics.quantiles(elapsed, n=4, method="inclusive")
    message_bytes = case.message_bytes
    if case.mixed:
        _flat, offsets = check.random_messages(case.count, seed=1)
        message_bytes = int(offsets[-1]) // case.count
    # The model of a limit holds for one device, the chosen variant and messages of one length.
    several = stage.backend == "cuda" and stage.name == "end-to-end" and len(devices()) > 1
    fits = not several and not case.mixed and not stage.name.startswith("kernel ")
    top = ceiling.of(stage.backend, case.which, message_bytes) if fits else None
    rate = stage.hashes / median
    calls = case.count / stage.hashes  # the reference may hash only a part of the messages
    return Result(
        algorithm=case.algorithm,
        backend=stage.backend,
        stage=stage.name,
        message_bytes=message_bytes,
        mixed=case.mixed,
        count=case.count,
        runs=len(elapsed),
        seconds=case.count / rate,
        lower_quartile_s=lower * calls,
        upper_quartile_s=upper * calls,
        hashes_per_s=rate,
        gigabytes_per_s=rate * message_bytes / 1e9,
        limit_hashes_per_s=top.hashes_per_s if top else None,
        limit_formula=top.formula if top else "",
    )


def _with_energy(result: Result, stage: Stage, window_s: float) -> Result:
    # The kernel stage runs on the first device.
    meter = energy.gpu_meter(devices()[0].pci_bus_id) if stage.backend == "cuda" else energy.cpu_meter()
    if meter is None:
        return result

    repeat = max(1, math.ceil(LEAST_ENERGY_RUN_S / (result.seconds * stage.hashes / result.count)))

    def work() -> None:
        _time(stage, repeat)

    try:
        spent, runs = energy.measure(meter, work, window_s=window_s)
    except BackendUnavailableError as error:
        log.warning("the energy of %s on %s is unknown: %s", result.algorithm, result.backend, error)
        return result
    hashes = runs * repeat * stage.hashes
    return replace(
        result,
        joules_per_hash=spent.joules / hashes,
        net_joules_per_hash=spent.net_joules / hashes,
        mean_w=spent.mean_w,
        clock_mhz=spent.clock_mhz,
        power_source=meter.name,
    )
