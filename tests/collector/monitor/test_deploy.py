"""Check the files for operators: the systemd unit runs our command; alerts and panels use real metrics."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import which

import pytest
import typer

from collector.cli import app
from collector.monitor.metrics import Metrics

DEPLOY = Path("collector/deploy")
METRIC = re.compile(r"\b((?:pool_collector|process)_[a-z_]+)\b")
# The exposure by systemd-analyze, 0 to 10; most of it is that the service reaches a node and is scraped.
MOST_EXPOSURE = 1.5


@pytest.fixture
def unit(repo_root: Path) -> dict[str, list[str]]:
    """Return the settings of the systemd unit, by name."""
    settings: dict[str, list[str]] = {}
    for line in (repo_root / DEPLOY / "pool-collector.service").read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            settings.setdefault(name, []).append(value)
    return settings


class NoStore:
    """Stands for a copy in an object store to which nothing was ever uploaded."""

    last_at_s = None
    blocked = ""

    def waiting(self) -> tuple[int, int]:
        """Return that nothing waits."""
        return 0, 0


def sample_names() -> set[str]:
    """Return every name under which Prometheus stores one of our metrics."""
    metrics = Metrics(["node"])
    metrics.report_disk(Path(), {"node": Path()})
    metrics.report_store(NoStore())
    names = set()
    for family in metrics.registry.collect():
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
        names |= {family.name + ending for ending in endings}
    return names


def expressions(repo_root: Path) -> Iterator[tuple[str, str]]:
    """Yield every PromQL expression of the alerts and panels, after the name of its alert or panel."""
    rules = (repo_root / DEPLOY / "alerts.yaml").read_text()
    yield from re.findall(r"- alert: (\w+)\n\s+expr: (.+)", rules)
    dashboard = json.loads((repo_root / DEPLOY / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def test_alerts_and_panels_use_metrics_that_exist(repo_root: Path) -> None:
    """Alerts and panels use only metrics that exist, and every metric but `build_info` is used by one."""
    existing = sample_names()
    asked = set()
    for place, expression in expressions(repo_root):
        names = set(METRIC.findall(expression))
        assert names <= existing, f"{place}: {names - existing}"
        assert names or expression.startswith("up{"), place
        asked |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
    ours = {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in existing if name.startswith("pool_collector")
    }
    assert ours - asked == {"pool_collector_build_info"}


def test_every_alert_says_why(repo_root: Path) -> None:
    """Each alert has a severity, a summary and a reason."""
    rules = (repo_root / DEPLOY / "alerts.yaml").read_text()
    alerts = rules.split("- alert: ")[1:]
    assert alerts
    for alert in alerts:
        assert re.search(r"severity: (warning|critical)", alert), alert
        assert re.search(r"summary: .+\.\n\s+why: .+\.\n", alert), alert


def test_the_unit_starts_a_command_of_ours(unit: dict[str, list[str]]) -> None:
    """The command line in the systemd unit parses as a `pool-collector` command."""
    (line,) = unit["ExecStart"]
    program, verb, *flags = shlex.split(line)
    assert Path(program).name == "pool-collector"
    group = typer.main.get_command(app)
    context = typer.Context(group)
    command = group.get_command(context, verb)  # type: ignore[attr-defined]
    assert command is not None, f"{verb} is no command of ours"
    parsed = command.make_context(verb, flags, parent=context)
    assert str(parsed.params["config"]).startswith("/etc/pool-collector/")


def test_the_unit_lets_it_do_little(unit: dict[str, list[str]]) -> None:
    """The systemd unit restricts the service, but allows it to make memory executable, which numba needs."""
    expected = {
        "Type": "notify",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "Restart": "on-failure",
        "LimitCORE": "0",
    }
    assert {name: unit[name] for name in expected} == {name: [value] for name, value in expected.items()}
    assert unit["RestrictAddressFamilies"] == ["AF_INET AF_INET6 AF_UNIX"]  # AF_UNIX: NOTIFY_SOCKET
    assert unit["CapabilityBoundingSet"] == [""]
    assert "MemoryDenyWriteExecute" not in unit


@pytest.mark.skipif(which("systemd-analyze") is None, reason="no systemd-analyze: install systemd")
def test_systemd_accepts_the_unit(repo_root: Path, tmp_path: Path) -> None:
    """`systemd-analyze` reports no unknown setting, no warning and a low exposure for the unit."""
    text = (repo_root / DEPLOY / "pool-collector.service").read_text()
    unit = tmp_path / "pool-collector.service"
    unit.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", text))
    verified = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    rated = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", unit], capture_output=True, text=True, check=False
    )
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", rated.stdout)
    assert exposure, rated.stdout + rated.stderr
    assert float(exposure[1]) <= MOST_EXPOSURE


def test_prometheus_accepts_the_rules(repo_root: Path, tmp_path: Path) -> None:
    """`promtool` accepts the alert rules, and two alerts fire at the right time and not before."""
    promtool = os.environ.get("PROMTOOL") or which("promtool")
    if promtool is None:
        pytest.skip("no promtool: install prometheus, or set PROMTOOL")
    rules = repo_root / DEPLOY / "alerts.yaml"
    cases = tmp_path / "cases.yaml"
    cases.write_text(CASES.replace("RULES", str(rules)))
    for arguments in (["check", "rules", str(rules)], ["test", "rules", str(cases)]):
        result = subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


CASES = """\
rule_files: [RULES]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'pool_collector_in_step{node="alpha"}'
        values: '1 1 0x20'
      - series: 'pool_collector_losses_total{node="alpha", topic="rawtx", reason="gap"}'
        values: '0 0 0 0 1x20'
    alert_rule_test:
      - {eval_time: 5m, alertname: PoolCollectorOutOfStep, exp_alerts: []}
      - eval_time: 8m
        alertname: PoolCollectorResyncsOften
        exp_alerts: []
      - {eval_time: 3m, alertname: PoolCollectorLoss, exp_alerts: []}
    promql_expr_test:
      - expr: count(ALERTS{alertname="PoolCollectorOutOfStep", node="alpha", alertstate="firing"})
        eval_time: 8m
        exp_samples: [{labels: '{}', value: 1}]
      - expr: count(ALERTS{alertname="PoolCollectorLoss", alertstate="firing"})
        eval_time: 6m
        exp_samples: [{labels: '{}', value: 1}]
"""
