"""Check the files for containers and for systemd beside the collector's own unit, without an engine.

They are read by parsers, and every command line, file, port and metric job in them must be one of ours.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import typer
import yaml

from analysis.cli import app as analysis_app
from collector.cli import app as collector_app

DEPLOY = Path("collector/deploy")
APPS = {"pool-collector": collector_app, "pool-analysis": analysis_app}
PACKAGES = ("collector", "analysis", "gpuhash")
UNITS = ("pool-analysis-build.service", "pool-analysis-page.service", "pool-analysis-build.timer")
# What loopback means here: the containers share the network of the node's.
SHARED_NETWORK = "service:node"


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
    assert services["node"]["ports"] == ["127.0.0.1:9744:9744", "127.0.0.1:3000:3000", "8333:8333"]
    for name, service in services.items():
        assert name == "node" or (service["network_mode"], "ports" in service) == (SHARED_NETWORK, False)


def test_our_containers_may_do_little(compose: dict[str, Any]) -> None:
    """Each has a read-only root, no capability and no way to new privileges."""
    ours = [service for service in compose["services"].values() if service["image"] == "pool-measurement"]
    assert len(ours) == 3
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
    (job,) = read["./prometheus.yaml"]["scrape_configs"]
    assert job["job_name"] == "pool-collector"
    (provider,) = read["./grafana-dashboards.yaml"]["providers"]
    assert Path(mounts["./grafana-dashboard.json"]).parent == Path(provider["options"]["path"])
    listening = "--web.listen-address=127.0.0.1:9090"
    assert listening in compose["services"]["prometheus"]["command"]
    (source,) = read["./grafana-provisioning.yaml"]["datasources"]
    assert source["url"] == "http://" + listening.partition("=")[2]


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
