"""The benchmark: verified before it is timed, complete, honest about what is unknown. No test of speed."""

import io
import json
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from gpuhash import check, reference
from gpuhash.cpu import CpuBackend
from gpuhash.errors import BackendUnavailableError, GpuhashError, InvalidInputError, WrongHashError
from gpuhash.lanes import Lanes
from gpuhash.measure import (
    bench,
    bench_run,
    ceiling,
    cpu_operations,
    document,
    limits,
    peers,
    plot,
    report,
    stages,
    tables,
    vector_units,
)
from gpuhash.measure.bench import SEARCH, Result
from gpuhash.measure.conditions import Watch
from gpuhash.reference import Algorithm
from tests.gpuhash.measure import benchmarks


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Run a very short benchmark of the real cpu backend."""
    return benchmarks.measure()


def test_every_stage_of_every_backend_is_reported(results: list[Result]) -> None:
    """The reference end to end, the cpu backend in all its stages; figures that fit each other."""
    lines = [(result.algorithm, result.backend, result.stage) for result in results]

    assert lines == [
        (SEARCH, "reference", "end-to-end"),
        (SEARCH, "cpu", "kernel"),
        (SEARCH, "cpu", "end-to-end"),
        *[
            line
            for algorithm in ("sha256d", "keccak256")
            for line in (
                (algorithm, "reference", "end-to-end"),
                (algorithm, "cpu", "kernel"),
                (algorithm, "cpu", "resident"),
                (algorithm, "cpu", "end-to-end"),
            )
        ],
    ]
    for result in results:
        assert result.runs >= bench.FEWEST_RUNS
        assert result.hashes_per_s == pytest.approx(result.count / result.seconds)
        assert result.gigabytes_per_s == pytest.approx(result.hashes_per_s * result.message_bytes / 1e9)
        assert (result.ratio_to_reference is None) == (result.backend == "reference")
        if result.limit_hashes_per_s:
            assert result.limit_formula in {ceiling.BY_UNITS, ceiling.BY_SHIFTS, ceiling.BY_SHA}
            assert result.share_of_limit == result.hashes_per_s / result.limit_hashes_per_s


def test_tables_fit_a_terminal_and_show_no_rate_as_zero(results: list[Result]) -> None:
    """80 columns hold the longest usual line, and a slow line keeps its digits."""
    usual = replace(results[0], count=100_000, hashes_per_s=123456.0, ratio_to_reference=12.5)
    slow = replace(usual, stage="kernel", hashes_per_s=0.0754, gigabytes_per_s=9.4e9 / 1e9)
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    for table in (tables.of_results([usual, slow]), tables.of_comparison(report.compare([usual], [usual]))):
        console.print(table)
    text = console.file.getvalue()

    assert max(map(len, text.splitlines())) <= 80
    assert "123.5 k" in text
    assert "0.07540" in text
    assert "9.400 G" in text


def test_nothing_is_timed_when_a_backend_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong digest stops the benchmark before it measures anything."""
    monkeypatch.setattr(check, "compare", lambda *_: (_ for _ in ()).throw(WrongHashError("digest 1")))

    with pytest.raises(WrongHashError, match="digest 1"):
        next(bench.run(benchmarks.CASES[1:], ["cpu"], seconds=0.01))


def test_energy_is_unknown_without_a_counter(results: list[Result], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no counter can be read the energy is None, in JSON null, never 0."""
    monkeypatch.setattr(bench.energy, "cpu_meter", lambda: None)
    stage = stages.of_search("cpu", bytes(80), 1000)[0]

    result = bench._with_energy(replace(results[1], seconds=0.05, count=1000), stage, window_s=1.0)

    assert result.joules_per_hash is None
    document = json.loads(benchmarks.text_of([result]))
    assert document["results"][0]["joules_per_hash"] is None


def test_a_counter_that_fails_costs_no_result(
    results: list[Result], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A counter that stands still leaves the energy unknown, and the log says so."""

    def fail(*_: object, **__: object) -> None:
        raise BackendUnavailableError("the counter has not moved for 10.0 s")

    monkeypatch.setattr(bench.energy, "cpu_meter", object)
    monkeypatch.setattr(bench.energy, "measure", fail)

    result = bench._with_energy(results[1], stages.of_search("cpu", bytes(80), 1000)[0], window_s=1.0)

    assert result == results[1]
    assert "has not moved" in caplog.text


def test_energy_per_hash_comes_from_the_counter(
    results: list[Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Energy per hash is the joules of the measured time, divided by the hashes in that time.

    A call of 0.5 s is done twice between two looks at the counter, so four runs are eight calls.
    """
    monkeypatch.setattr(bench.energy, "cpu_meter", lambda: SimpleNamespace(name="RAPL, all packages"))
    spent = bench.energy.Energy(seconds=2.0, joules=100.0, idle_w=10.0, clock_mhz=None)

    def measure(
        _meter: object, work: Callable[[], None], *, window_s: float
    ) -> tuple[bench.energy.Energy, int]:
        assert window_s == 1.0
        for _ in range(4):
            work()
        return spent, 4

    monkeypatch.setattr(bench.energy, "measure", measure)
    calls: list[int] = []
    stage = bench.Stage(backend="cpu", name="kernel", hashes=1000, work=lambda: calls.append(1))

    result = bench._with_energy(replace(results[1], seconds=0.5, count=1000), stage, window_s=1.0)

    shown = [column.header for column in tables.of_results([result, results[0]]).columns]
    assert shown[-4:] == ["nJ/hash", "net nJ/hash", "W", "MHz"]
    assert len(calls) == 8
    assert result.joules_per_hash == pytest.approx(100 / 8000)
    assert result.net_joules_per_hash == pytest.approx(80 / 8000)
    assert result.mean_w == 50
    assert result.power_source == "RAPL, all packages"


def test_a_slow_reference_hashes_few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pycryptodome, Keccak-256 is plain Python: then it hashes for a tenth of a second."""
    short, long = np.zeros((50_000, 8), np.uint8), np.zeros((3, 1 << 17), np.uint8)

    assert bench._reference_count(Algorithm.SHA256, short[:5]) == 5
    monkeypatch.setattr(reference, "pycryptodome", None)
    assert bench._reference_count(Algorithm.KECCAK256, long) == 1
    assert 1 < bench._reference_count(Algorithm.KECCAK256, short) < bench.REFERENCE_MESSAGES
    monkeypatch.setattr(bench, "REFERENCE_S", 1e9)
    assert bench._reference_count(Algorithm.SHA256, short) == bench.REFERENCE_MESSAGES


def test_a_benchmark_that_is_stopped_leaves_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each case is written when it is measured, and its name is shown."""
    files = bench_run.Files(json=tmp_path / "a.json", csv=None, plot=None)
    cases = [bench.Case(algorithm=name, count=64, message_bytes=64) for name in ("sha256", "sha256d")]
    run = bench.run

    def stop_at_the_second(cases: list[bench.Case], *rest: object, **options: float) -> Iterator[Result]:
        if cases[0].algorithm == "sha256d":
            raise KeyboardInterrupt
        return run(cases, *rest, **options)

    monkeypatch.setattr(bench, "run", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        bench_run.measure(cases, ["cpu"], [], seconds=0.01, energy_window_s=0.0, keep=files.keep)

    assert {result.algorithm for result in document.read(tmp_path / "a.json").results} == {"sha256"}
    assert capsys.readouterr().err == "1 of 2: sha256, 64 messages of 64 bytes\n"


def test_a_pipe_gets_the_results_once(results: list[Result]) -> None:
    """What was measured so far goes only to a file that is replaced later. /dev/full would refuse it."""
    measured = bench_run.Measured(
        results=results,
        beside=[],
        conditions=Watch().conditions(),
        method=document.method_of(0.01, 0.0),
    )
    files = bench_run.Files(json=Path("/dev/full"), csv=Path("/dev/full"), plot=None)

    files.keep(measured)
    with pytest.raises(GpuhashError, match="cannot write /dev/full"):
        files.write(measured)


def test_a_gpu_works_untimed_before_each_run() -> None:
    """Of two stages alike, that of a GPU is called twice for each run and the other once."""
    calls = {"cuda": 0, "cpu": 0}

    def stage(backend: str) -> bench.Stage:
        def work() -> None:
            calls[backend] += 1
            time.sleep(0.02)

        return bench.Stage(backend=backend, name="kernel", hashes=1, work=work)

    times = bench.time_together([stage("cuda"), stage("cpu")], seconds=0.2)

    n_runs = len(times[0])
    assert n_runs == len(times[1]) >= 5
    assert calls == {"cuda": 2 + 2 * n_runs, "cpu": 2 + n_runs}


def test_a_gpu_gets_a_batch_that_fills_it() -> None:
    """Without batches asked for; long messages would take gigabytes, so they get none."""

    def counts(names: list[str], message_bytes: int, asked: list[int] | None = None) -> list[int]:
        cases = bench_run.cases_of(["keccak256"], names, message_bytes, asked)
        return [case.count for case in cases]

    assert counts(["cpu"], 64) == [1000, 100_000]
    assert counts(["cpu", "cuda"], 64) == [1000, 100_000, 1 << 22]
    assert counts(["cuda"], 4096) == [1000, 100_000]
    assert counts(["cuda"], 64, [7]) == [7]


def test_csv_has_a_line_per_result(results: list[Result]) -> None:
    """The CSV has a header and one line per result; unknown fields are empty."""
    lines = report.to_csv(results).splitlines()

    assert len(lines) == len(results) + 1
    assert lines[0].split(",")[:3] == ["algorithm", "backend", "stage"]
    assert lines[1].endswith(",,,,,20000,")


def test_two_benchmarks_are_compared_line_by_line(results: list[Result]) -> None:
    """Twice as fast is a ratio of 2; lines only one of them has are left out."""
    faster = [replace(result, hashes_per_s=result.hashes_per_s * 2) for result in results[1:]]

    lines = report.compare(results, faster)

    assert len(lines) == len(results) - 1
    assert {line.ratio for line in lines} == {2.0}


def test_the_crossover_is_the_first_batch_that_stays_ahead(results: list[Result]) -> None:
    """A batch size at which a backend wins does not count if it loses at a larger one."""

    def line(backend: str, count: int, rate: float) -> Result:
        return replace(
            results[0], algorithm="sha256", backend=backend, message_bytes=64, count=count, hashes_per_s=rate
        )

    rates = {"reference": (5, 5, 5, 5), "cpu": (6, 4, 9, 30), "cuda": (1, 1, 1, 1)}
    lines = [
        line(backend, count, rate)
        for backend, series in rates.items()
        for count, rate in zip((1, 10, 100, 1000), series, strict=True)
    ]

    found = {(one.faster, one.slower): one.from_count for one in report.crossovers(lines)}

    assert found == {("cpu", "reference"): 100, ("cuda", "cpu"): None}


def test_the_chart_shows_every_line(results: list[Result], tmp_path: Path) -> None:
    """An SVG with a panel per case and a legend of backends and stages."""
    pytest.importorskip("vl_convert")

    plot.write_svg(results, tmp_path / "out.svg")

    text = (tmp_path / "out.svg").read_text()
    assert text.startswith("<svg")
    for expected in ("sha256d, 64 B", "header-search, 80 B", "reference", "cpu", "kernel", "end-to-end"):
        assert f">{expected}</text>" in text
    with pytest.raises(InvalidInputError, match="does not end in"):
        plot.write_svg(results, tmp_path / "out.png")


def program(folder: Path, name: str, text: str) -> None:
    """Write a program of this name that prints this text."""
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_peers_are_run_in_turn_with_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The speeds hashcat and openssl print, in their units, against ours; medians and the paired ratio."""
    speeds = "Speed.#1.........: 63063.0 kH/s (7.65ms) @ Accel:256\nSpeed.#*.........:   126.5 MH/s"
    program(tmp_path, "hashcat", speeds)
    program(tmp_path, "openssl", "+DT:sha256:1:64\n+F:22:sha256:324000000.00")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    ours = iter([250e6, 100e6, 253e6])

    beside = peers.beside_hashcat(SEARCH, "cpu", lambda: next(ours))

    assert beside is not None
    assert beside.peer_hashes_per_s == 126.5e6
    assert beside.hashes_per_s == 250e6
    assert beside.ratio == pytest.approx(250 / 126.5)
    on_gpu = peers.beside_hashcat(SEARCH, "cuda", lambda: 1.0)
    assert on_gpu is not None
    assert on_gpu.peer_hashes_per_s == 63.063e6  # of one device, as ours
    openssl = peers.beside_openssl("sha256", "cpu", 64, lambda: 1.0)
    assert openssl is not None
    assert openssl.peer_hashes_per_s == 324e6 / 64


def test_peers_that_are_missing_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not installed is no result; installed and without a speed is an error with its words."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert peers.beside_hashcat(SEARCH, "cpu", lambda: 1.0) is None
    assert peers.beside_openssl("sha256", "cpu", 64, lambda: 1.0) is None

    program(tmp_path, "hashcat", "No devices found/left.")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(GpuhashError, match="No devices found"):
        peers.beside_hashcat(SEARCH, "cpu", lambda: 1.0)
    assert peers.beside_hashcat("sha256d", "cpu", lambda: 1.0) is None


def test_a_peer_without_a_speed_does_not_end_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that fails is named on standard error, and the next one is compared."""
    program(tmp_path, "hashcat", "No OpenCL-compatible platform found.")
    program(tmp_path, "openssl", "+DT:sha256:1:64\n+F:22:sha256:324000000.00")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(bench_run, "_kernel_rate", lambda _stage: 1e6)

    compared = list(bench_run.measure_peers(["sha256"], ["cpu"]))

    assert [result.peer for result in compared] == ["openssl speed -bytes 64"]
    shown = capsys.readouterr().err
    assert "sha256 on cpu is not compared: hashcat -m 1400 gave no speed: No OpenCL" in shown


def test_operations_per_hash_follow_from_the_algorithm() -> None:
    """One more block costs one more compression or permutation; a search costs less than two."""
    sha256 = [
        cpu_operations.operations_per_hash(Algorithm.SHA256, length) for length in (0, 55, 56, 119, 120)
    ]
    keccak = [cpu_operations.operations_per_hash(Algorithm.KECCAK256, length) for length in (0, 135, 136)]

    assert sha256[0] < sha256[1]  # padding alone, whose schedule never changes
    assert sha256[2] == sha256[3] == 2 * sha256[1]
    assert sha256[4] == 3 * sha256[1]
    assert cpu_operations.operations_per_hash(Algorithm.SHA256, 64) == sha256[0] + sha256[1]
    assert keccak[0] == keccak[1] < keccak[2] < 2.1 * keccak[0]
    assert sha256[1] < cpu_operations.operations_per_hash(None, 80) < sha256[2]
    assert vector_units.operations_per_s(CpuBackend().thread_count) > 1e6


def test_chains_are_a_part_of_the_operations() -> None:
    """In a chain each operation waits for the last: four a round. One chain is slower than twelve."""
    rounds = 64 - 3 + 61  # of a header search: the first three and the last three are left out

    assert 4 * rounds <= cpu_operations.search_chain() < 4.5 * rounds * cpu_operations.ROTATION_CHAIN
    assert 24 * 6 <= cpu_operations.permutation_chain() < 24 * 14
    assert vector_units.chained_operations_per_s(1) < vector_units.operations_per_s(1)
    for bounds in ceiling.of_cpu():
        assert bounds.chain < bounds.operations
        assert min(bounds.by_chain, bounds.by_units, bounds.by_shifts) > 0


def test_shifts_are_counted() -> None:
    """SHA-256 has six rotations a round; each further word has four rotations and two shifts."""
    rounds, further_words = 64 - 3 + 61, 47 + 45

    def emit(lanes: Lanes, words: list[object], _fixed: list[object]) -> list[object]:
        return [lanes.xor(lanes.rotate_left(words[0], 5), lanes.shift_right(words[0], 3))]

    assert cpu_operations._count_shifts(emit, bits=32, varying=1) == cpu_operations.ROTATION_SHIFTS + 1
    most = rounds * 6 + further_words * 6
    assert 0.8 * most < cpu_operations.shifts_per_hash(None, 80) / cpu_operations.ROTATION_SHIFTS <= most
    assert (
        cpu_operations.shifts_per_hash(Algorithm.KECCAK256, 64)
        <= 24 * (5 + 24) * cpu_operations.ROTATION_SHIFTS
    )


def test_what_is_no_operation_is_not_counted() -> None:
    """Settling a sum, a complement and a term of zero cost nothing; what is added does."""

    def emit(lanes: Lanes, words: list[object], _fixed: list[object]) -> list[object]:
        total = lanes.settled(lanes.add(words[0], words[1], lanes.constant(0)))
        return [lanes.xor(lanes.builder.and_(lanes.builder.not_(total), words[0]), words[1])]

    assert cpu_operations._count(emit, bits=32, varying=2) == 3  # an addition, an AND, an XOR
    assert (
        cpu_operations._chain(emit, bits=32, varying=2, fixed=0) == 3 + 1
    )  # the addition of zero is in the way


def test_limits_have_a_ceiling_only_where_a_model_fits() -> None:
    """The reference has no upper bound of its speed; the model of a GPU has one for each kernel."""
    assert ceiling.of("reference", None, 80) is None
    assert ceiling._kernel(None, 80) == "search"
    assert ceiling._kernel(Algorithm.SHA256D, 64) == "merkle_nodes"
    assert ceiling._kernel(Algorithm.SHA3_256, 64) == "hash_64_bytes"
    assert ceiling._kernel(Algorithm.SHA256D, 65) is None


def test_the_model_of_the_h200() -> None:
    """Instruction counts and formula give the figures the README prints."""
    found = {(limit.kernel, limit.variant): limit for limit in limits.for_architecture("sm_90")}
    search = found["search", "adds"]

    assert search.cycles_per_hash == search.instructions.alu / 64
    assert search.bound_by == "ALU"
    assert search.hashes_per_s(132, 1980) == pytest.approx(132 * 1980e6 / search.cycles_per_hash)
    assert (limits.nearest(90), limits.nearest(87), limits.nearest(103), limits.nearest(70)) == (
        "sm_90",
        "sm_86",
        "sm_100",
        "sm_75",
    )
    with pytest.raises(InvalidInputError, match=r"sm_35.*there are sm_75"):
        limits.for_architecture("sm_35")


def test_beside_a_peer_messages_stay_in_the_cache() -> None:
    """The stage hashes the same few messages often, and counts every hash."""
    stage = stages.beside_peer("cpu", Algorithm.KECCAK256)

    assert stage.name == "kernel"
    threads = CpuBackend().thread_count
    assert stage.hashes == stages.PEER_MESSAGES["cpu"] * stages.PEER_REPEATS * threads
    assert stages.PEER_MESSAGES["cpu"] * (stages.PEER_BYTES + 32) <= 1 << 21
    assert stages.beside_peer("cpu", None).hashes == stages.PEER_NONCES["cpu"]
