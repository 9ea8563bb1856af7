"""The document of a benchmark: its form is that of the schema, and what cannot be relied on is refused."""

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.measure import document, machine
from gpuhash.measure.bench import Result
from gpuhash.measure.conditions import Conditions, Watch
from gpuhash.measure.document import Method
from gpuhash.measure.peers import PeerResult
from tests.gpuhash.measure import benchmarks


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Run a very short benchmark of the real cpu backend."""
    return benchmarks.measure()


@pytest.fixture
def written(results: list[Result], tmp_path: Path) -> Path:
    """Write a real benchmark to a file."""
    path = tmp_path / "a.json"
    path.write_text(benchmarks.text_of(results))
    return path


def test_the_schema_is_valid_and_names_every_field() -> None:
    """JSON Schema 2020-12; a field that is added to the code must be added to the schema, and the reverse."""
    schema = document.schema()

    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["properties"]["format"]["const"] == document.FORMAT
    for part, kind in (
        (schema["properties"]["machine"], machine.Machine),
        (schema["properties"]["conditions"], Conditions),
        (schema["properties"]["method"], Method),
        (schema["properties"]["peers"]["items"], PeerResult),
    ):
        assert set(part["properties"]) == set(part["required"]) == {field.name for field in fields(kind)}
        assert part["additionalProperties"] is False
    result = schema["properties"]["results"]["items"]
    expected = {field.name for field in fields(Result)} | set(document.DERIVED)
    assert set(result["properties"]) == set(result["required"]) == expected


def test_what_was_written_is_read(results: list[Result], written: Path) -> None:
    """Figures, machine, conditions and method survive; every figure was verified before it was timed."""
    benchmark = document.read(written)

    assert list(benchmark.results) == results
    assert benchmark.machine == machine.describe() or benchmark.machine.cpu == machine.describe().cpu
    assert benchmark.method.warm_up_calls == 2
    assert 0 <= (benchmark.conditions.busy_elsewhere_ratio or 0) <= 1
    assert {result.verified_hashes for result in results} == {20_000, 300}
    for result in results:
        assert result.lower_quartile_s <= result.seconds * (1 + 1e-9)
        assert result.seconds <= result.upper_quartile_s * (1 + 1e-9)
        assert result.spread_ratio >= 0


def test_layout_does_not_change_the_digest(written: Path) -> None:
    """Other blanks and another order of keys are the same content."""
    content = json.loads(written.read_text())
    before = document.read(written)
    written.write_text(json.dumps(dict(reversed(content.items())), indent=7))

    assert document.read(written) == before


def test_every_figure_and_fact_is_under_the_digest(written: Path) -> None:
    """A number anywhere in the document, raised a little, is noticed."""
    original = written.read_text()
    content = json.loads(original)
    edits: list[Callable[[dict[str, Any]], object]] = [
        lambda d: d["results"][1].update(hashes_per_s=d["results"][1]["hashes_per_s"] * 1.01),
        lambda d: d["results"][0].update(joules_per_hash=1e-9),
        lambda d: d["machine"].update(cpu="A faster one"),
        lambda d: d["conditions"].update(busy_elsewhere_ratio=0.001),
        lambda d: d["method"].update(seconds_per_stage=10.0),
        lambda d: d["results"].pop(),
    ]
    assert len(content["results"]) > 2
    for edit in edits:
        written.write_text(original)
        benchmarks.change(written, edit, digest_anew=False)
        with pytest.raises(InvalidInputError, match=r"a\.json was changed after it was written"):
            document.read(written)


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [
        (lambda d: d.update(format=1), r"has format 1; this program reads 2"),
        (lambda d: d.update(format=True), r"has format True"),
        (lambda d: d.update(format="2"), r"has format '2'"),
        (lambda d: d.pop("format"), r"no field `format`"),
        (lambda d: d["results"][0].update(hashes_per_s="fast"), r"at \$\.results\[0\]\.hashes_per_s, 'fast'"),
        (lambda d: d["results"][0].update(hashes_per_s=-1.0), r"at \$\.results\[0\]\.hashes_per_s, -1\.0"),
        (lambda d: d["results"][0].pop("runs"), r"at \$\.results\[0\], 'runs' is a required property"),
        (lambda d: d["machine"].update(mood="good"), r"at \$\.machine, .*'mood' was unexpected"),
        (lambda d: d.update(results=[]), r"at \$\.results, \[\] should be non-empty"),
        (lambda d: d["results"][0].update(algorithm="md5"), r"'md5' is not one of"),
        (lambda d: d["results"][2].update(verified_hashes=0), r"was not verified: result 3"),
    ],
)
def test_another_version_or_form_is_refused_even_with_a_fitting_digest(
    written: Path, edit: Callable[[dict[str, Any]], object], complaint: str
) -> None:
    """Each with the place and the value; a digest computed anew does not help."""
    benchmarks.change(written, edit, digest_anew=True)

    with pytest.raises(InvalidInputError, match=complaint):
        document.read(written)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is not JSON"),
        ("[]", "is not a benchmark"),
        ("[" * 100_000, "is not JSON"),
        ('{"format": 2, "format": 2}', "'format' stands twice"),
        ('{"format": 2, "results": NaN}', "NaN is no number"),
        ('{"format": 2}', "has a wrong form"),
    ],
)
def test_a_file_that_is_no_benchmark_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """Empty, other JSON, JSON nested deeply, a key twice, a number that JSON lacks, nothing inside."""
    path = tmp_path / "b.json"
    path.write_text(text)

    with pytest.raises(InvalidInputError, match=rf"b\.json .*{complaint}"):
        document.read(path)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, and a file that does not exist."""
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")

    with pytest.raises(InvalidInputError, match="is not JSON"):
        document.read(tmp_path / "b.json")
    with pytest.raises(InvalidInputError, match="cannot read"):
        document.read(tmp_path / "none.json")


def test_what_was_not_verified_is_not_read(results: list[Result], tmp_path: Path) -> None:
    """A program that times without comparing can write a document, but none that is accepted."""
    path = tmp_path / "u.json"
    path.write_text(benchmarks.text_of([replace(results[0], verified_hashes=0)]))

    with pytest.raises(InvalidInputError, match="was timed without comparing a hash"):
        document.read(path)


def test_without_jsonschema_results_are_written_but_not_read(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A bare GPU machine keeps its figures, with a word in the log; reading needs the check."""
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    document._warn_unchecked.cache_clear()
    path = tmp_path / "a.json"
    with caplog.at_level(logging.WARNING, "gpuhash"):
        path.write_text(benchmarks.text_of(results))
    assert "was not checked" in caplog.text
    with pytest.raises(BackendUnavailableError, match="pip install jsonschema"):
        document.read(path)
    monkeypatch.undo()
    assert list(document.read(path).results) == results


def test_the_load_of_others_is_seen(tmp_path: Path) -> None:
    """CPU time that went to others, of the time that passed; unknown where the system reports nothing."""
    times = tmp_path / "stat"
    times.write_text("cpu  1000 0 0 1000 0 0 0 0 0 0\n")
    watch = Watch(times)
    times.write_text("cpu  4000 0 0 2000 0 0 0 0 0 0\n")

    # This process worked for some hundredths of a second, of the 40 seconds that the file tells of.
    assert watch.conditions().busy_elsewhere_ratio == pytest.approx(0.75, abs=0.02)
    assert Watch(tmp_path / "none").conditions().busy_elsewhere_ratio is None
