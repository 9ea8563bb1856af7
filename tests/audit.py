"""Ask for known vulnerabilities of what requirements.lock pins. Part of `make lint`, alone as `make audit`.

    python tests/audit.py [--strict] [LOCK]

Status 1 when a service knows one. Two services are asked, PyPI's and OSV; what neither can answer, because it
is out of reach or the index carries no such data, is named as not audited. That is no failure, since a
checkout without a network must be able to lint; with --strict, for those who ask for an audit, it is one. It
takes a minute at most.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SERVICES = ("pypi", "osv")
TOTAL_S = 60.0
ANSWER_S = 10  # for one question


class Verdict(NamedTuple):
    """What a service knew of the pinned packages."""

    n_audited: int
    not_audited: tuple[str, ...]  # names
    vulnerable: tuple[str, ...]  # a line each


NOTHING = Verdict(0, (), ())
UNKNOWN = "whether a pinned package is vulnerable is not known; `make audit` asks again"


def read(report: Mapping[str, Any]) -> Verdict:
    """Read the JSON report of pip-audit. One that audits nothing calls itself clean all the same."""
    audited = [each for each in report["dependencies"] if "skip_reason" not in each]
    skipped = [each["name"] for each in report["dependencies"] if "skip_reason" in each]
    vulnerable = [
        f"{each['name']} {each['version']}: {fault['id']}, mended in {_versions(fault)}"
        for each in audited
        for fault in each["vulns"]
    ]
    return Verdict(len(audited), tuple(skipped), tuple(vulnerable))


def _versions(fault: Mapping[str, Any]) -> str:
    return ", ".join(fault["fix_versions"]) or "no version"


def ask(service: str, lock: Path, deadline_s: float) -> Verdict | str:
    """Ask one service; a text says why there is no answer."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--requirement",
        str(lock),
        "--require-hashes",
        "--disable-pip",
    ]
    options = ["--vulnerability-service", service, "--timeout", str(ANSWER_S), "--format", "json"]
    left_s = deadline_s - time.monotonic()
    try:
        result = subprocess.run(
            [*command, *options, "--progress-spinner", "off"],
            capture_output=True,
            text=True,
            check=False,
            timeout=max(left_s, 1.0),
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {left_s:.0f} s"
    try:
        return read(json.loads(result.stdout))
    except ValueError:
        return _why((result.stderr.strip().splitlines() or ["no answer"])[-1])


def _why(said: str) -> str:
    """Shorten what the HTTP library says of a service that it cannot reach."""
    host = re.search(r"ConnectionPool\(host='([^']+)'", said)
    return f"{host[1]} is out of reach" if host else said


def audit(lock: Path) -> tuple[int, list[str]]:
    """Return the exit status, and the lines that say why."""
    deadline_s = time.monotonic() + TOTAL_S
    unanswered = []
    best = NOTHING
    for service in SERVICES:
        answer = ask(service, lock, deadline_s)
        if isinstance(answer, str):
            unanswered.append(f"not audited by {service}: {answer}")
        elif answer.n_audited == 0:
            unanswered.append(
                f"not audited by {service}: it has no data on any of the {len(answer.not_audited)} packages"
            )
        else:
            best = answer
            break
    return judged(best, unanswered)


def judged(verdict: Verdict, unanswered: list[str]) -> tuple[int, list[str]]:
    """Say what was found; 1 when something is vulnerable."""
    if verdict.vulnerable:
        return 1, ["vulnerable:", *verdict.vulnerable]
    if verdict.n_audited == 0:
        return 0, [*unanswered, UNKNOWN]
    lines = [f"audited: {verdict.n_audited} packages, no known vulnerability"]
    if verdict.not_audited:
        lines.append(f"not audited: {', '.join(verdict.not_audited)}")
    return 0, lines


def main() -> None:
    """Audit the lock file of this checkout, or another one."""
    parser = argparse.ArgumentParser(prog="audit", description=__doc__.partition("\n")[0])
    parser.add_argument("lock", nargs="?", type=Path, default=ROOT / "requirements.lock")
    parser.add_argument("--strict", action="store_true", help="status 1 too when nobody could be asked")
    arguments = parser.parse_args()
    status, lines = audit(arguments.lock)
    for line in lines:
        print(line)
    sys.exit(status or (arguments.strict and UNKNOWN in lines))


if __name__ == "__main__":
    main()
