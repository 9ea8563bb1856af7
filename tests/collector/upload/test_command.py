"""Test what `pool-collector upload` says and does: one sentence per mistake, and what --watch survives."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collector.cli import app
from collector.dataset.file_list import FileList
from collector.dataset.open import Dataset
from collector.errors import CollectorError, WrongUsage
from tests.collector.compaction.made_files import write_events
from tests.collector.upload.gate import KEY, SECRET, Handler, Place, busy
from tests.collector.upload.test_upload import LIST, copied, local
from tests.rights import without_rights

PATIENCE_S = 60.0
NO_KEY = "has no key and no secret; write it as s3://bucket/prefix"


def refusal(
    dataset: Dataset, address: str, *options: str, error: type[CollectorError] = CollectorError
) -> str:
    """Call the command, which fails; return its sentence."""
    result = CliRunner().invoke(app, ["upload", str(dataset.root), address, "--patience", "0", *options])
    assert isinstance(result.exception, error), result.output
    said = f"{result.exception}\n{result.output}"
    assert KEY not in said
    assert SECRET not in said
    assert "127.0.0.1" not in said  # nor the endpoint
    return str(result.exception)


def test_the_command_says_what_it_did(dataset: Dataset, place: Place) -> None:
    """The endpoint is an option or a variable; a second call has nothing to say of puts."""
    command = ["upload", str(dataset.root), str(place.address)]

    first = CliRunner().invoke(app, [*command, "--endpoint", place.gate.url])
    second = CliRunner().invoke(app, [*command, "--json"], env={"AWS_ENDPOINT_URL": place.gate.url})

    assert "7 files uploaded" in first.stdout
    assert f"{place.address} has 7 files" in first.stdout
    assert '"n_put": 0' in second.stdout
    assert '"n_files": 7' in second.stdout


@pytest.mark.parametrize(
    ("words", "variable"),
    [
        (["--dataset", "{root}", "{to}"], ""),
        (["{root}", "--dataset", "{root}", "{to}"], ""),
        (["{to}"], "{root}"),
    ],
)
def test_the_dataset_is_named_as_other_commands_do(
    dataset: Dataset, place: Place, words: list[str], variable: str
) -> None:
    """By an option, by both, or by the variable; the address alone is then the only word."""
    named = {"root": str(dataset.root), "to": str(place.address)}
    command = ["upload", *(word.format(**named) for word in words), "--endpoint", place.gate.url]

    done = CliRunner().invoke(app, command, env={"POOL_COLLECTOR_DATASET": variable.format(**named)})

    assert "7 files uploaded" in done.stdout


@pytest.mark.parametrize("mode", [0o000, 0o111, 0o444])
def test_a_folder_that_may_not_be_read_costs_no_copy(dataset: Dataset, place: Place, mode: int) -> None:
    """The command says which folder it is, and removes nothing from the store."""
    prefix = without_rights()
    options = ("upload", dataset.root, place.address, "--endpoint", place.gate.url)
    command = [*prefix, sys.executable, "-m", "collector", *map(str, options)]
    subprocess.run(command, check=True, capture_output=True)
    before = copied(place)
    folder = dataset.folder / "mempool_events" / "date=2024-10-04"
    assert folder.is_dir()
    folder.chmod(mode)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    folder.chmod(0o700)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: cannot ")
    assert str(folder) in done.stderr
    assert done.stderr.count("\n") == 1
    assert copied(place) == before


def test_a_word_too_many_is_refused() -> None:
    """Nothing is uploaded, and no word is shown: it may be an address with a secret."""
    done = CliRunner().invoke(app, ["upload", "one", "s3://key:secret@bucket/copy", "three"])

    assert isinstance(done.exception, WrongUsage)
    assert str(done.exception) == "3 words are too many; write [DATASET] ADDRESS"


@pytest.mark.parametrize(
    ("status", "code", "sentence"),
    [
        (403, "InvalidAccessKeyId", "the store refuses the key"),
        (403, "SignatureDoesNotMatch", "the store refuses the key"),
        (403, "AccessDenied", "has no right to do this"),
        (400, "IllegalLocationConstraintException", "set AWS_REGION to the bucket's region"),
        (403, "RequestTimeTooSkewed", "the clock of this machine differs"),
        (503, "SlowDown", "does not answer well (SlowDown); try again later"),
        (400, "OddAnswer", "refuses a request for s3://{bucket}/copy: OddAnswer text of the store"),
    ],
)
def test_a_refusal_is_one_sentence(
    dataset: Dataset, place: Place, status: int, code: str, sentence: str
) -> None:
    """It says what to change."""

    def refused(handler: Handler) -> bool:
        handler.refuse(status, code)
        return True

    place.gate.at("GET", "", *[refused] * 2)  # boto3 asks once more where the region may be wrong

    said = refusal(dataset, str(place.address), "--endpoint", place.gate.url)

    assert sentence.format(bucket=place.bucket) in said


def test_the_right_region_is_named(dataset: Dataset, place: Place) -> None:
    """Where the store tells it; boto3 asks once more in that region."""

    def refused(handler: Handler) -> bool:
        handler.refuse(400, "AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>")
        return True

    place.gate.at("GET", "", *[refused] * 2)
    said = refusal(dataset, str(place.address), "--endpoint", place.gate.url)
    assert said == f"the bucket {place.bucket!r} is in another region; set AWS_REGION=eu-west-1"


def test_a_missing_bucket_is_named(dataset: Dataset, place: Place) -> None:
    """The bucket is not made by us."""
    said = refusal(dataset, "s3://no-such-bucket/copy", "--endpoint", place.gate.url)
    assert said == "the store has no bucket 'no-such-bucket'; make it, or name another"


def test_a_store_that_is_not_there_is_waited_for_and_then_named(dataset: Dataset, place: Place) -> None:
    """Nothing listens on the port."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    said = refusal(dataset, str(place.address), "--endpoint", f"http://127.0.0.1:{port}")
    assert "does not answer well (it cannot be reached); try again later" in said


def test_a_missing_key_is_asked_for(dataset: Dataset, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual variables are named."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)

    said = refusal(dataset, str(place.address), "--endpoint", place.gate.url)

    assert said.startswith("there is no key for the store: set AWS_ACCESS_KEY_ID")


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/some/folder", "is no address in an object store; write it as s3://bucket/prefix"),
        ("s3:/bucket/prefix", "is no address in an object store"),
        ("s3://", "is no address in an object store"),
        ("s3://my bucket/x", "with letters, digits and - _ . in the bucket's name"),
        ("s3://x/y", "'x' is no name of a bucket, which has 3 to 63 characters"),
        (f"s3://{64 * 'x'}/y", "x' is no name of a bucket, which has 3 to 63 characters"),
        ("s3://key:secret@bucket/x", NO_KEY),
        ("s3://key:se/secret@bucket/x", NO_KEY),
        ("s3:/key:secret@bucket", NO_KEY),
        ("S3://key:secret@bucket", NO_KEY),
        ("https://key:se/secret@host/bucket", NO_KEY),
        ("s3://bucket/key:secret@x", NO_KEY),
        ("s3://bucket/a//b", "has the part ''"),
        ("s3://bucket/../b", "has the part '..'"),
        ("s3://bucket/a b", "has the part 'a b'"),
    ],
)
def test_a_wrong_address_is_refused(dataset: Dataset, address: str, sentence: str) -> None:
    """Before anything is asked; it is wrong usage. A secret in it is not shown."""
    said = refusal(dataset, address, error=WrongUsage)
    assert sentence in said
    assert "secret@" not in said


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:se/secret@bucket/x",
        "s3:/key:secret@bucket",
        "S3://key:secret@b",
        "https://key:secret@host/x",
    ],
)
@pytest.mark.parametrize("command", ["status", "compact", "mend"])
def test_no_command_shows_a_secret_in_an_address(command: str, address: str) -> None:
    """Whatever the scheme is, and where the secret has a slash: such a path is a wrong address."""
    done = CliRunner().invoke(app, [command, address])
    assert done.exit_code
    assert "secret@" not in f"{done.output}{done.exception}"


@pytest.mark.parametrize("endpoint", ["http://user:secret@store.example", "store.example", "http://[x"])
def test_a_wrong_endpoint_is_refused_and_not_shown(dataset: Dataset, place: Place, endpoint: str) -> None:
    """It may hold a password."""
    said = refusal(dataset, str(place.address), "--endpoint", endpoint)
    assert "the endpoint " in said
    assert endpoint not in said


@pytest.mark.parametrize(
    ("key", "content", "sentence"),
    [
        ("copy/photo.jpg", b"x", "holds other objects and is no dataset; choose an empty prefix"),
        ("copy/dataset.json", b"{}", "dataset.json marks the data of another program; choose another prefix"),
        ("copy/dataset.json", b"\xff", "cannot be read as the marker of a dataset"),
        (LIST, b"{}", "has a files.json that this software cannot read"),
        (
            "copy/chain=regtest/blocks/heights=0-999/x.parquet",
            b"x",
            "has files of the chain regtest that no upload of",
        ),
    ],
)
def test_a_place_that_holds_something_else_is_left_alone(
    dataset: Dataset, place: Place, key: str, content: bytes, sentence: str
) -> None:
    """Nothing is put there and nothing removed."""
    if "chain=" in key:
        place.put("copy/dataset.json", (dataset.root / "dataset.json").read_bytes())
    place.put(key, content)
    before = place.contents()

    assert sentence in refusal(dataset, str(place.address), "--endpoint", place.gate.url)
    assert place.contents() == before


def test_the_copy_of_another_dataset_is_left_alone(dataset: Dataset, place: Place, tmp_path: Path) -> None:
    """A dataset that was begun anew does not replace the copy of the old one."""
    CliRunner().invoke(app, ["upload", str(dataset.root), str(place.address), "--endpoint", place.gate.url])
    before = place.contents()
    other = Dataset.open(tmp_path / "other", "regtest", create=True)
    write_events(other, 1, 1)

    said = refusal(other, str(place.address), "--endpoint", place.gate.url)

    assert f"is the copy of another dataset than {other.root}" in said
    assert place.contents() == before


def test_a_moved_dataset_goes_on_with_its_copy(dataset: Dataset, place: Place, tmp_path: Path) -> None:
    """What tells a copy from that of another dataset moves with the folder."""
    CliRunner().invoke(app, ["upload", str(dataset.root), str(place.address), "--endpoint", place.gate.url])
    moved = Path(shutil.move(dataset.root, tmp_path / "moved"))

    result = CliRunner().invoke(app, ["upload", str(moved), str(place.address), "--endpoint", place.gate.url])

    assert "0 files uploaded" in result.stdout


def test_without_boto3_the_extra_is_named(
    dataset: Dataset, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence has the command that installs it."""
    for name in ("boto3", "botocore", "botocore.exceptions"):  # boto3 brings botocore
        monkeypatch.setitem(sys.modules, name, None)
    command = f"{sys.executable} -m pip install 'pool-measurement[s3]'"
    assert command in refusal(dataset, str(place.address))


def test_watch_uploads_what_is_sealed_and_outlives_the_store(
    dataset: Dataset, place: Place, tmp_path: Path
) -> None:
    """A store that is away for a while is asked again; Ctrl-C ends it in one line."""
    reached = {7: threading.Event(), 8: threading.Event()}

    def look(method: str, path: str) -> None:
        if method == "PUT" and "files.json" in path:
            n_listed = len(FileList.read(place.read(LIST), place.address).files)
            if n_listed in reached:
                reached[n_listed].set()

    place.gate.passed = look
    place.gate.at("GET", "dataset.json", busy)
    place.gate.at("PUT", "files.json", lambda _: False, busy)
    command = [sys.executable, "-P", "-m", "collector", "upload", "--watch", "--patience", "0"]
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as stderr,
        subprocess.Popen(
            [*command, str(dataset.root), str(place.address)],
            env=os.environ | {"AWS_ENDPOINT_URL": place.gate.url},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        ) as process,
    ):
        try:
            assert reached[7].wait(PATIENCE_S)
            write_events(dataset, 1, 2, day=2, stem="later")
            assert reached[8].wait(PATIENCE_S)
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 130
    assert copied(place) == local(dataset)
    said = errors.read_text()
    assert said.count("does not answer well (SlowDown)") == 2
    assert said.splitlines()[-1].endswith("the same command goes on with it")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 32])
def test_a_damaged_identity_is_named(dataset: Dataset, place: Place, content: bytes) -> None:
    """The file tells this dataset's copies from those of others."""
    (dataset.root / ".upload-id").write_bytes(content)
    assert ".upload-id is damaged" in refusal(dataset, str(place.address), "--endpoint", place.gate.url)
