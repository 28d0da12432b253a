"""docs/protocol.md names all cases of the suite, and only tests that exist."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from tests.conformance.differences import DIFFERENCES, known
from tests.conformance.suite import NAMES
from tests.support.live_server import ROOT

PAGE = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
SERVERS = ("triton", "kserve", "mlserver")


def test_every_test_on_the_page_exists() -> None:
    defined = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    assert len(named) > 50
    assert named - defined == set()


def test_the_page_names_every_case_of_the_suite() -> None:
    """Each name on it is one of a case, or of several with an asterisk."""
    patterns = set(re.findall(r"`((?:rest|grpc)\.[\w.*-]+)`", PAGE)) - {"grpc.health.v1.Health"}
    for pattern in patterns:
        assert any(fnmatchcase(name, pattern) for name in NAMES), pattern
    missing = [name for name in NAMES if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    assert missing == []
    assert f"sends {len(NAMES)} requests of the protocol" in PAGE


def test_the_page_lists_the_differences_of_other_servers() -> None:
    """A row for each, with the servers, and how many cases are left."""
    rows = [
        f"| {one.text} | {' | '.join('yes' if getattr(one, name) else '' for name in SERVERS)} |"
        for one in DIFFERENCES
    ]
    assert PAGE.endswith("\n".join(rows) + "\n")
    for server in SERVERS:
        assert re.search(rf"{server}[^,.]* {len(NAMES) - len(known(server))}\b", PAGE, re.IGNORECASE), server
