"""Do the steps of the Dockerfile in a clean root folder, and start what compose.yaml starts: `make image`.

    python -m tests.clean_root [--keep FOLDER]

For machines without a container engine; needs root, and unshare, chroot and setpriv of Linux. The system's
/usr and this Python stand in for the base image, everything else of the root is empty. The packages are
downloaded first, so the steps need no network. Collector, build and page then run as the image's user on a
root that cannot be written, against a regtest node. Status 1 with the output of the first step that fails.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest.ports import free_ports

ROOT: Final = Path(__file__).resolve().parents[1]
DEPLOY: Final = ROOT / "collector" / "deploy"
LONGEST_S: Final = 300.0
N_BLOCKS: Final = 4
TOKEN: Final = "a token for the clean root"  # noqa: S105 - opens nothing
# The system's programs, and this Python, which is not below /usr on every machine.
MOUNTED: Final = tuple(dict.fromkeys(("/usr", "/dev", "/proc", sys.base_prefix)))
LINKED: Final = ("bin", "lib", "lib64", "sbin")
# $1 is the root, $2 the folder that is mounted as /data, $3 as /extra; the command follows.
ENTER: Final = """
    set -e
    root=$1 data=$2 extra=$3
    shift 3
    if test -n "$data"; then
        mount --bind "$root" "$root.shut"
        mount -o remount,bind,ro "$root.shut"
        root=$root.shut
        mount --bind "$data" "$root/data"
    fi
    for each in $MOUNTED; do mount --rbind "$each" "$root$each"; done
    mount -t tmpfs none "$root/tmp"
    mount --bind "$extra" "$root/extra"
    exec chroot "$root" "$@"
"""


@dataclass
class Stage:
    """Is one stage of the image: its root folder, and what its instructions have set."""

    root: Path
    folder: str = "/"
    user: str = "0:0"
    environment: dict[str, str] = field(default_factory=dict)
    entry: list[str] = field(default_factory=list)
    health: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the rest of each instruction of a Dockerfile."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, rest = line.partition(" ")
            yield name, rest.strip()


def bare_root(root: Path) -> Stage:
    """Make a root folder that has the system's programs and nothing else."""
    for name in ("etc", "tmp", "data", "extra", "opt", "root", "var", "run", *(path[1:] for path in MOUNTED)):
        (root / name).mkdir(parents=True, exist_ok=True)
    root.with_name(f"{root.name}.shut").mkdir()
    for name in LINKED:
        if (Path("/") / name).is_symlink():
            (root / name).symlink_to((Path("/") / name).readlink())
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc" / "group").write_text("root:x:0:\n")
    shutil.copy("/etc/ld.so.cache", root / "etc")
    python = root / "opt" / "python"
    python.mkdir()
    (python / "python").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    system = os.pathsep.join(("/opt/python", "/usr/local/bin", "/usr/bin", "/usr/sbin"))
    return Stage(root, environment={"PATH": system, "LANG": "C.UTF-8"})


def entering(stage: Stage, command: Sequence[str], *, data: str = "", extra: Path) -> list[str]:
    """Return the command line that runs a command inside a root; with `data` the root cannot be written."""
    inside = ["sh", "-c", f"cd {shlex.quote(stage.folder)} && exec {shlex.join(command)}"]
    if stage.user != "0:0":
        user, _, group = stage.user.partition(":")
        rights = ["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        inside = ["setpriv", f"--reuid={user}", f"--regid={group}", *rights, *inside]
    values = [f"{name}={value}" for name, value in stage.environment.items()]
    script = ENTER.replace("$MOUNTED", " ".join(map(shlex.quote, MOUNTED)))
    entered = ["sh", "-c", script, "sh", str(stage.root), data, str(extra), "/usr/bin/env", "-i", *values]
    return ["unshare", "--mount", *entered, *inside]


def checked(command: Sequence[str], words: str) -> str:
    """Run a command and return its output; leave with it where the command fails."""
    print("$", words, flush=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}status {done.returncode}")
    return done.stdout


def download(folder: Path) -> None:
    """Download what the image installs, in the versions of the lock, and what builds the wheel."""
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [re.sub(r"\[.*\]| \\$", "", line) for line in lock if not line.startswith((" ", "#"))]
    (folder / "constraints.txt").write_text("\n".join(pins) + "\n")
    where = ["--dest", str(folder), "--constraint", str(folder / "constraints.txt")]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", *where]
    checked([*command, str(ROOT), "hatchling", "editables"], "pip download")


def build(folder: Path) -> Stage:
    """Do every instruction of the Dockerfile; return the last stage."""
    wheels = folder / "wheels"
    wheels.mkdir()
    download(wheels)
    stages: dict[str, Stage] = {}
    for name, rest in instructions((DEPLOY / "Dockerfile").read_text()):
        if name == "FROM":
            words = rest.split()
            label = words[2] if len(words) > 1 else "last"
            stages[label] = stage = bare_root(folder / label)
        elif name == "WORKDIR":
            stage.folder = rest
            (stage.root / rest[1:]).mkdir(parents=True, exist_ok=True)
        elif name == "COPY":
            copy(stages, stage, rest.split())
        elif name == "RUN":
            offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/extra", "PIP_CONFIG_FILE": "/dev/null"}
            values = [f"{key}={value}" for key, value in offline.items()]
            command = ["env", *values, "sh", "-c", rest]
            checked(entering(stage, command, extra=wheels), f"RUN {rest}"[:100])
        else:
            setting(stage, name, rest)
    return stages["last"]


def copy(stages: Mapping[str, Stage], stage: Stage, words: list[str]) -> None:
    """Do a COPY from the checkout or from another stage."""
    origin = ROOT
    if words[0].startswith("--from="):
        origin = stages[words.pop(0).removeprefix("--from=")].root
    *sources, target = words
    for source in sources:
        path = origin / source.lstrip("/")
        to = stage.root / os.path.join(stage.folder, target).lstrip("/")  # noqa: PTH118 - `target` may be absolute
        if path.is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, to, symlinks=True, dirs_exist_ok=True, ignore=ignored)
        else:
            shutil.copy(path, to / path.name if target.endswith("/") else to)


def setting(stage: Stage, name: str, rest: str) -> None:
    """Take over an instruction that only sets something."""
    if name == "ENV":
        for word in shlex.split(rest):
            key, _, value = word.partition("=")
            stage.environment[key] = value.replace("$PATH", stage.environment["PATH"])
    elif name == "USER":
        stage.user = rest
    elif name == "ENTRYPOINT":
        stage.entry = list(yaml.safe_load(rest))
    elif name == "HEALTHCHECK":
        stage.health = list(yaml.safe_load(rest.partition("CMD ")[2]))
    elif name not in ("LABEL", "VOLUME", "STOPSIGNAL", "CMD"):
        sys.exit(f"the Dockerfile has an instruction that this script does not know: {name}")


class Service:
    """Runs one service in the image until it is stopped; its output goes to a file."""

    def __init__(self, stage: Stage, command: Sequence[str], data: Path, extra: Path, log: Path) -> None:
        self._log = log
        print("$", *command, flush=True)
        line = entering(stage, command, data=str(data), extra=extra)
        with log.open("wb") as output:
            self._process = subprocess.Popen(line, stdout=output, stderr=output)

    def wait(self, command: Sequence[str]) -> None:
        """Wait until a command succeeds, as a health check does."""
        end_s = time.monotonic() + LONGEST_S
        while subprocess.run(command, capture_output=True, check=False).returncode:
            if self._process.poll() is not None or time.monotonic() > end_s:
                self._process.kill()
                sys.exit(f"{self._log.read_text()}it did not become healthy")
            time.sleep(0.5)

    def stop(self) -> None:
        """Send SIGTERM; leave with the output where the service does not end with 0."""
        self._process.terminate()
        if status := self._process.wait(LONGEST_S):
            sys.exit(f"{self._log.read_text()}status {status} after SIGTERM")


def run_services(stage: Stage, folder: Path) -> None:
    """Run collector, build and page as compose.yaml has them, on a regtest node."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    data = folder / "data"
    data.mkdir()
    user, _, group = stage.user.partition(":")
    os.chown(data, int(user), int(group))
    with RegtestNode(find_bitcoind()) as node:
        node.client().call("generatetodescriptor", N_BLOCKS, "raw(51)")
        for path in (node.datadir, node.datadir / "regtest"):
            path.chmod(0o755)
        node.cookie_path.chmod(0o644)  # in compose.yaml the node has the same user
        (metrics,) = free_ports(1)
        stage.environment["POOL_COLLECTOR_METRICS"] = f"127.0.0.1:{metrics}"
        command = [each.replace("/node", "/extra") for each in services["collector"]["command"]]
        regtest = ["--chain", "regtest", "--rpc-url", node.rpc_url]
        collector = Service(
            stage, [*stage.entry, *command, *regtest], data, node.datadir, folder / "collector.log"
        )
        health = [each.replace("9733", str(metrics)) for each in stage.health]
        collector.wait(entering(stage, health, data=str(data), extra=node.datadir))
        node.client().call("generatetodescriptor", N_BLOCKS, "raw(51)")
        time.sleep(1)
        collector.stop()
    loop = services["build"]["command"][0]
    once = re.search(r"pool-analysis build [^;]*", loop)
    assert once, loop
    checked(entering(stage, once[0].split(), data=str(data), extra=folder), once[0])
    ask_page(stage, services["page"], data, folder)


def ask_page(stage: Stage, page: Mapping[str, list[str]], data: Path, folder: Path) -> None:
    """Serve the page as compose.yaml does, ask for one block, and stop."""
    secrets = folder / "secrets"
    secrets.mkdir()
    (secrets / "page_token").write_text(TOKEN)
    (port,) = free_ports(1)
    moved = [each.replace("9744", str(port)).replace("/run/secrets", "/extra") for each in page["command"]]
    service = Service(stage, [*page["entrypoint"], *moved], data, secrets, folder / "page.log")
    check = page["healthcheck"]["test"][1:]  # type: ignore[call-overload]
    service.wait(
        entering(stage, [each.replace("9744", str(port)) for each in check], data=str(data), extra=secrets)
    )
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/api/v1/blocks?limit=1", headers={"authorization": f"Bearer {TOKEN}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own server
        print(answer.read().decode()[:300])
    service.stop()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", type=Path, help="empty folder for everything that is made, kept at the end")
    keep = parser.parse_args().keep
    if os.geteuid() != 0 or any(shutil.which(name) is None for name in ("unshare", "chroot", "setpriv")):
        sys.exit("a clean root folder needs root, and unshare, chroot and setpriv")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) if keep is None else keep.resolve()
        folder.mkdir(parents=True, exist_ok=True)
        stage = build(folder)
        run_services(stage, folder)
    print("every step of the Dockerfile works, and collector, build and page run on a root that is shut")


if __name__ == "__main__":
    main()
