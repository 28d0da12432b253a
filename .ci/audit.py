"""Checks the pinned versions of constraints.txt for known vulnerabilities, with pip-audit.

pip-audit asks a database on the network. Behind a mirror it may find no package there, and then reports no
vulnerability. So a pin with a known vulnerability is checked first. A database that answers without reporting
it fails the check, as its other answers would mean nothing. If no database answers, or pip-audit cannot be
installed, the check is skipped with a warning, or fails if TURNPIKE_AUDIT is `required`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
# CVE-2019-10906, CVE-2020-28493 and others
PLANTED_PIN = "jinja2==2.10"
# databases, as pip-audit calls them
DATABASES = ("osv", "pypi")
# for a request of pip-audit, and for all of them
REQUEST_SECONDS, AUDIT_SECONDS = 15, 300


class UnreachableError(Exception):
    """A database gave no answer, or does not know the package."""


def install_pip_audit() -> Path:
    """The path of pip-audit, in an environment of its own."""
    folder = ROOT / ".audit"
    folder.mkdir(exist_ok=True)
    programs = folder / PIP_AUDIT / "bin"
    with (folder / "lock").open("w") as lock:
        # tests run this at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (programs / "ready").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", programs.parent], check=True)
            pip = [programs / "python", "-m", "pip", "install", "--quiet"]
            subprocess.run([*pip, "--constraint", ROOT / "constraints.txt", PIP_AUDIT], check=True)
            (programs / "ready").touch()
    return programs / "pip-audit"


def audit(pip_audit: Path, pins: Path, database: str, osv_url: str | None) -> list[dict[str, Any]]:
    """pip-audit's records of all pins; raises UnreachableError if the database did not answer for each."""
    url = ["--osv-url", osv_url] if osv_url else []
    command = [pip_audit, "--requirement", pins, "--no-deps", "--disable-pip", "--format", "json"]
    command += ["--vulnerability-service", database, *url]
    command += ["--progress-spinner", "off", "--timeout", str(REQUEST_SECONDS)]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=AUDIT_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise UnreachableError(f"no answer within {AUDIT_SECONDS} s") from error
    try:
        records: list[dict[str, Any]] = json.loads(result.stdout)["dependencies"]
    except ValueError as error:
        raise UnreachableError(result.stderr.strip().rpartition("\n")[2]) from error
    skipped = [record["skip_reason"] for record in records if "skip_reason" in record]
    if skipped:
        raise UnreachableError(skipped[0])
    return records


def find_database(pip_audit: Path, osv_url: str | None) -> str | None:
    """The first database that reports the vulnerabilities of the planted pin; None if none can be reached.

    Exits with 1 if a database answers without reporting them, because its other answers would mean nothing.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(PLANTED_PIN + "\n")
        file.flush()
        for database in DATABASES[:1] if osv_url else DATABASES:
            try:
                records = audit(pip_audit, Path(file.name), database, osv_url)
            except UnreachableError as error:
                say(f"{database} cannot be used: {error}")
                continue
            if not any(record["vulns"] for record in records):
                sys.exit(f"audit: expected {database} to report {PLANTED_PIN}, got no vulnerability")
            return database
    return None


def say(text: str) -> None:
    sys.stdout.write(f"audit: {text}\n")


def skip(reason: str) -> int:
    """Say that nothing was checked. Returns the exit status."""
    say(f"SKIPPED: NO PIN WAS CHECKED, because {reason}")
    return int(os.environ.get("TURNPIKE_AUDIT") == "required")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pins", type=Path, default=ROOT / "constraints.txt", help="file to check")
    parser.add_argument("--osv-url", help="address of another database with the interface of OSV")
    options = parser.parse_args()
    try:
        pip_audit = install_pip_audit()
    except subprocess.CalledProcessError:
        return skip("pip-audit cannot be installed")
    database = find_database(pip_audit, options.osv_url)
    if database is None:
        return skip("no database of vulnerabilities can be reached")
    try:
        records = audit(pip_audit, options.pins, database, options.osv_url)
    except UnreachableError as error:
        say(f"{database} did not answer for every pin: {error}")
        return 1
    for record in records:
        for vulnerability in record["vulns"]:
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version"
            names = ", ".join([vulnerability["id"], *vulnerability["aliases"]])
            say(f"{record['name']}=={record['version']} has {names}, fixed in {fixed}")
    vulnerable = sum(bool(record["vulns"]) for record in records)
    say(f"{vulnerable} of {len(records)} pins are vulnerable, according to {database}")
    return int(vulnerable > 0)


if __name__ == "__main__":
    sys.exit(main())
