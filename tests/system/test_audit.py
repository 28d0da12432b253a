"""The check of pinned versions for known vulnerabilities, with the real pip-audit and a small database."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.version import Version

from tests.support.live_server import environment, free_port

# installs pip-audit once
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# a package, the id of one of its vulnerabilities, and the version that fixed it
JINJA2 = ("jinja2", "CVE-2019-10906", "2.10.1")
URLLIB3 = ("urllib3", "CVE-2019-11324", "1.24.2")


@contextmanager
def database(*known: tuple[str, str, str], broken_after: int = 10_000) -> Iterator[str]:
    """The address of a database with OSV's interface, which fails after some requests."""
    answered = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            query = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answered.append(query)
            vulnerabilities = [
                {
                    "id": identifier,
                    "summary": "a vulnerability",
                    "published": "2019-04-07T00:00:00Z",
                    "affected": [
                        {
                            "package": {"name": name, "ecosystem": "PyPI"},
                            "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": fixed}]}],
                        }
                    ],
                }
                for name, identifier, fixed in known
                if query["package"]["name"] == name and Version(query["version"]) < Version(fixed)
            ]
            body = json.dumps({"vulns": vulnerabilities} if vulnerabilities else {}).encode()
            self.send_response(200 if len(answered) <= broken_after else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing about requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def audit(url: str, pins: Path, **variables: str) -> tuple[int, str]:
    """The exit status and the output of the check."""
    result = subprocess.run(
        [sys.executable, ROOT / ".ci/audit.py", "--osv-url", url, "--pins", pins],
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    """The pins of the repository, to which a test may add others."""
    copy = tmp_path / "constraints.txt"
    copy.write_text((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    return copy


def test_pins_without_vulnerabilities_pass(pins: Path) -> None:
    """Every pin is checked."""
    count = sum("==" in line for line in pins.read_text().splitlines())
    with database(JINJA2, URLLIB3) as url:
        assert audit(url, pins) == (0, f"audit: 0 of {count} pins are vulnerable, according to osv\n")


def test_a_vulnerable_pin_fails(pins: Path) -> None:
    """The output names it, its vulnerability, and the version to take."""
    pins.write_text(pins.read_text().replace("urllib3==", "urllib3==1.24.1  # not "))
    with database(JINJA2, URLLIB3) as url:
        status, output = audit(url, pins)
    assert status == 1
    assert "urllib3==1.24.1 has CVE-2019-11324, fixed in 1.24.2" in output


def test_a_database_that_misses_a_known_vulnerability_fails(pins: Path) -> None:
    """Its silence about other pins would mean nothing."""
    with database(URLLIB3) as url:
        status, output = audit(url, pins)
    assert status == 1
    assert "expected osv to report jinja2==2.10" in output


def test_a_database_that_stops_answering_fails(pins: Path) -> None:
    """Half of the answers do not count as a check."""
    with database(JINJA2, broken_after=20) as url:
        status, output = audit(url, pins)
    assert status == 1
    assert "osv did not answer for every pin" in output


@pytest.mark.parametrize(
    ("variables", "expected"),
    [pytest.param({}, 0, marks=pytest.mark.thorough), ({"TURNPIKE_AUDIT": "required"}, 1)],
)
def test_without_a_database_the_check_is_skipped(
    pins: Path, variables: dict[str, str], expected: int
) -> None:
    """The output says so; where the check is required, it fails."""
    status, output = audit(f"http://127.0.0.1:{free_port()}/v1/query", pins, **variables)
    assert status == expected
    assert "SKIPPED: NO PIN WAS CHECKED" in output
