"""Check the files for containers and for systemd beside the collector's own unit, without an engine.

They are read by parsers, and every command line, file, port and metric job in them must be one of ours.
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import typer
import yaml

from analysis.cli import app as analysis_app
from collector.cli import app as collector_app
from collector.config import NodeSettings, Settings

DEPLOY = Path("collector/deploy")
START9 = DEPLOY / "start9"
APPS = {"pool-collector": collector_app, "pool-analysis": analysis_app}
PACKAGES = ("collector", "analysis", "gpuhash")
UNITS = ("pool-analysis-build.service", "pool-analysis-page.service", "pool-analysis-build.timer")
# What loopback means here: the containers share the network of this one.
SHARED_NETWORK = "service:network"


def assert_parses(program: str, verb: str, *flags: str) -> None:
    """Fail unless these words are a command of ours with options that it has."""
    group = typer.main.get_command(APPS[program])
    context = typer.Context(group)
    command = group.get_command(context, verb)  # type: ignore[attr-defined]
    assert command is not None, f"{program} has no {verb}"
    command.make_context(verb, list(flags), parent=context)


def our_commands(services: dict[str, Any], default: str) -> Iterator[list[str]]:
    """Yield the words of each command of ours that the services of a compose file run."""
    for service in services.values():
        if not service.get("image", "").startswith("pool-measurement"):
            continue
        words = [*service.get("entrypoint", [default]), *service.get("command", ["run"])]
        if words[0] == "sleep":  # it only holds the network of the others
            continue
        if words[0] == "sh":
            words = shlex.split(re.findall(r"pool-[^;]+", words[-1])[0])
        yield [re.sub(r"\$\{\w+(:[^}]*)?\}", "value", word) for word in words]


@pytest.fixture
def compose(repo_root: Path) -> dict[str, Any]:
    """Read compose.yaml."""
    return yaml.safe_load((repo_root / DEPLOY / "compose.yaml").read_text())


@pytest.mark.parametrize("file", ["compose.yaml", "umbrel/docker-compose.yml"])
def test_containers_run_commands_of_ours(repo_root: Path, file: str) -> None:
    """Collector, build and page are commands with options that exist."""
    services = yaml.safe_load((repo_root / DEPLOY / file).read_text())["services"]
    commands = list(our_commands(services, "pool-collector"))

    for words in commands:
        assert_parses(*words)
    assert {words[1] for words in commands} == {"run", "build", "serve"}


def test_only_the_page_grafana_and_the_peers_of_the_node_are_reached(compose: dict[str, Any]) -> None:
    """RPC, ZMQ, metrics and Prometheus stay inside; the page and Grafana listen to this machine alone."""
    services = compose["services"]
    assert services["network"]["ports"] == ["127.0.0.1:9744:9744", "127.0.0.1:3000:3000", "8333:8333"]
    for name, service in services.items():
        assert name == "network" or (service["network_mode"], "ports" in service) == (SHARED_NETWORK, False)


def test_a_node_that_restarts_takes_nobodys_network_away(compose: dict[str, Any]) -> None:
    """The container that holds the network runs nothing that could end, and depends on nothing."""
    holder = compose["services"][SHARED_NETWORK.removeprefix("service:")]

    assert holder["entrypoint"] == ["sleep", "infinity"]
    assert holder["init"] is True  # SIGTERM ends it
    assert not {"command", "depends_on", "network_mode"} & set(holder)


def options_of_the_page(services: dict[str, Any]) -> dict[str, str]:
    """Return the options of the page in a compose file, by name."""
    return dict(word.removeprefix("--").split("=", 1) for word in services["page"]["command"] if "=" in word)


def test_every_page_follows_the_collector_beside_it(repo_root: Path, compose: dict[str, Any]) -> None:
    """The page of each installation shows new blocks as they come, from where its collector tells them."""
    image = (repo_root / DEPLOY / "Dockerfile").read_text()
    (address,) = re.findall(r"POOL_COLLECTOR_METRICS=(\S+)", image)
    umbrel = yaml.safe_load((repo_root / DEPLOY / "umbrel/docker-compose.yml").read_text())["services"]
    told = Settings(**{
        name.removeprefix("POOL_COLLECTOR_").lower(): value
        for name, value in umbrel["collector"]["environment"].items()
        if "METRICS" in name
    })  # fmt: skip
    assert told.metrics is not None
    example = tomllib.loads((repo_root / "collector/config.example.toml").read_text())
    unit = (repo_root / DEPLOY / "pool-analysis-page.service").read_text()
    script = (repo_root / START9 / "docker_entrypoint.sh").read_text()

    assert options_of_the_page(compose["services"])["collector"] == f"http://{address}"
    port = told.metrics.rpartition(":")[2]
    assert options_of_the_page(umbrel)["collector"] == f"http://pool-measurement_collector_1:{port}"
    assert f"--collector http://{example['metrics']} --wait" in unit
    for services in (compose["services"], umbrel):
        assert "--wait" in services["page"]["command"]  # a page before there is a first build
    assert f"--collector=http://{address}" in script


def test_our_containers_may_do_little(compose: dict[str, Any]) -> None:
    """Each has a read-only root, no capability and no way to new privileges."""
    ours = [service for service in compose["services"].values() if service["image"] == "pool-measurement"]
    assert len(ours) == 4
    for service in ours:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_mounted_files_exist_and_provision_the_dashboard(repo_root: Path, compose: dict[str, Any]) -> None:
    """Prometheus and Grafana get our rules, job, data source and dashboard, at the paths that name them."""
    mounts = {}
    for service in compose["services"].values():
        for volume in service.get("volumes", []):
            source, _, target = volume.partition(":")
            if source.startswith("./"):
                assert (repo_root / DEPLOY / source).is_file(), source
                mounts[source] = target.removesuffix(":ro")
    read = {
        name: yaml.safe_load((repo_root / DEPLOY / name).read_text())
        for name in mounts
        if name.endswith("yaml")
    }
    assert read["./prometheus.yaml"]["rule_files"] == [mounts["./alerts.yaml"]]
    jobs = {each["job_name"]: each for each in read["./prometheus.yaml"]["scrape_configs"]}
    assert set(jobs) == {"pool-collector", "pool-analysis"}
    page = compose["services"]["page"]["command"]
    token = jobs["pool-analysis"]["authorization"]["credentials_file"]
    assert f"--token-file={token}" in page
    assert [Path(token).name] == compose["services"]["prometheus"]["secrets"]
    (target,) = jobs["pool-analysis"]["static_configs"][0]["targets"]
    assert f"--address=0.0.0.0:{target.rpartition(':')[2]}" in page
    (provider,) = read["./grafana-dashboards.yaml"]["providers"]
    dashboards = [target for source, target in mounts.items() if source.endswith("json")]
    assert len(dashboards) == len(set(dashboards)) == 2
    assert {Path(target).parent for target in dashboards} == {Path(provider["options"]["path"])}
    listening = "--web.listen-address=127.0.0.1:9090"
    assert listening in compose["services"]["prometheus"]["command"]
    (source,) = read["./grafana-provisioning.yaml"]["datasources"]
    assert source["url"] == "http://" + listening.partition("=")[2]


def test_the_app_for_umbrel_brings_the_folder_that_it_writes(repo_root: Path) -> None:
    """Umbrel gives an app's own folders to user 1000; one that Docker makes for a mount belongs to root."""
    folder = repo_root / DEPLOY / "umbrel"
    services = yaml.safe_load((folder / "docker-compose.yml").read_text())["services"]
    mounted = {volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    own = {path.removeprefix("${APP_DATA_DIR}/") for path in mounted if path.startswith("${APP_DATA_DIR}/")}
    kept = subprocess.run(
        ["git", "ls-files", "*/.gitkeep"], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.split()

    assert own == {Path(name).parent.name for name in kept}


def test_startos_finds_every_file_and_volume_that_its_manifest_names(repo_root: Path) -> None:
    """Each program is copied into the image, each mount is a volume, and the page's port is published."""
    folder = repo_root / START9
    manifest = yaml.safe_load((folder / "manifest.yaml").read_text())
    copied = (folder / "Dockerfile").read_text()
    actions = [manifest["main"], *manifest["health-checks"].values(), *manifest["config"].values()]
    actions += manifest["backup"].values()

    for action in actions:
        assert set(action["mounts"]) <= {*manifest["volumes"], "BACKUP"}
        if action["image"] == "main":
            assert f"{START9}/{action['entrypoint']}" in copied
            assert (folder / action["entrypoint"]).stat().st_mode & 0o111
    assert (folder / manifest["assets"]["instructions"]).is_file()
    assert (folder / manifest["assets"]["icon"]).is_file()
    page = manifest["interfaces"]["main"]
    assert (page["tor-config"]["port-mapping"], page["lan-config"][443]["internal"]) == ({80: "9744"}, 9744)
    assert manifest["version"] in (folder / "Dockerfile").read_text()


def test_startos_starts_commands_of_ours_with_the_values_that_it_keeps(repo_root: Path) -> None:
    """The entry point reads no value that the configuration lacks, and each command line has our options."""
    script = (repo_root / START9 / "docker_entrypoint.sh").read_text()
    spec = yaml.safe_load((repo_root / START9 / "assets/compat/config_spec.yaml").read_text())
    asked = set(re.findall(r"value ([a-z]\S*)\)", script))
    lines = re.findall(r"pool-\w+ (?:run|build|serve)[^&|]*", script.replace("\\\n", " "))

    assert asked == set(spec)
    commands = [shlex.split(re.sub(r'"\$[^"]*"', "value", line)) for line in lines]
    for words in commands:
        assert_parses(*words)
    assert [words[1] for words in commands] == ["run", "build", "serve"]
    nodes = json.loads(re.findall(r"POOL_COLLECTOR_NODE='([^']*)'", script)[0])
    assert NodeSettings(**nodes[0]).allow_remote_rpc


def test_startos_stops_the_service_and_is_told_of_a_failure(repo_root: Path, tmp_path: Path) -> None:
    """The entry point ends with 0 after SIGTERM, and with 1 when the collector ends by itself."""
    script = (repo_root / START9 / "docker_entrypoint.sh").read_text().replace("/data", str(tmp_path))
    (tmp_path / "start9").mkdir()
    (tmp_path / "start9" / "config.yaml").write_text("rpc-user: alice\nrpc-password: 'a b'\n")
    program = tmp_path / "pool-collector"
    (tmp_path / "pool-analysis").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "pool-analysis").chmod(0o755)
    statuses = []
    for doing in ("exec sleep 600", "exit 3"):
        program.write_text(f"#!/bin/sh\necho started\n{doing}\n")
        program.chmod(0o755)
        with subprocess.Popen(
            ["bash", "-c", script],
            stdout=subprocess.PIPE,
            start_new_session=True,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        ) as service:
            assert service.stdout is not None
            assert service.stdout.readline() == b"started\n"
            if "sleep" in doing:
                service.terminate()
            statuses.append(service.wait(60))
            # A container ends with its first process, a session does not. Nothing may be left of it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(service.pid, signal.SIGKILL)

    assert statuses == [0, 1]
    assert (tmp_path / "bitcoin.conf").read_text() == "rpcuser=alice\nrpcpassword=a b\n"
    assert (tmp_path / "bitcoin.conf").stat().st_mode & 0o777 == 0o600


def test_every_variable_of_compose_is_in_its_example(repo_root: Path, compose: dict[str, Any]) -> None:
    """compose.env names each variable that must be set."""
    needed = set(re.findall(r"\$\{(\w+):\?", yaml.safe_dump(compose, width=10_000)))
    example = (repo_root / DEPLOY / "compose.env").read_text()

    assert needed == {"NODE_DATA", "POOL_DATA", "PAGE_TOKEN_FILE", "GRAFANA_PASSWORD"}
    assert needed <= set(re.findall(r"^(\w+)=", example, re.MULTILINE))


def test_the_image_copies_what_the_wheel_needs(repo_root: Path) -> None:
    """Every copied path exists, the user is none with rights, and the entry point is ours."""
    text = (repo_root / DEPLOY / "Dockerfile").read_text()
    lines = re.findall(r"^COPY ([^-].*) \S+$", text, re.MULTILINE)
    copied = [word for line in lines for word in line.split()]

    assert {"requirements.lock", "pyproject.toml", "collector", "analysis", "gpuhash", "data/pools"} <= set(
        copied
    )
    assert [path for path in copied if not (repo_root / path).exists()] == []
    sent = (repo_root / DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert {line[1:] for line in sent if line.startswith("!")} == set(copied)
    assert re.findall(r"^USER (.*)$", text, re.MULTILINE) == ["1000:1000"]
    assert 'ENTRYPOINT ["pool-collector"]' in text
    assert "HEALTHCHECK" in text


@pytest.mark.parametrize("name", UNITS[:2])
def test_units_start_commands_of_ours(repo_root: Path, name: str) -> None:
    """The units of build and page start commands of ours, on the dataset of the collector's unit."""
    (line,) = re.findall(r"^ExecStart=(.*)$", (repo_root / DEPLOY / name).read_text(), re.MULTILINE)
    program, *words = shlex.split(line)

    assert Path(program).parent == Path("/opt/pool-measurement/.venv/bin")
    assert_parses(Path(program).name, *words)
    assert "--database /var/lib/pool-collector/build/analysis.duckdb" in line


@pytest.mark.skipif(which("systemd-analyze") is None, reason="no systemd-analyze: install systemd")
def test_systemd_accepts_the_units(repo_root: Path, tmp_path: Path) -> None:
    """No unknown setting and no warning."""
    for name in UNITS:
        text = (repo_root / DEPLOY / name).read_text()
        (tmp_path / name).write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", text))
    verified = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / name for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
