"""The same service in turnpike and in its rivals: programs run, and docs/how-to/coming-from.md shows them."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from benchmarks.comparison.same_service import (
    ALL_SERVICES,
    FASTAPI,
    MODEL,
    REQUESTS,
    TURNPIKE,
    Service,
    ask,
    rows_of_requests,
)
from benchmarks.folders import DOCS, RIVALS
from turnpike.service.artifact.runtime import open_model

PAGE = (DOCS / "how-to" / "coming-from.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("service", [TURNPIKE, FASTAPI], ids=lambda service: service.name)
def test_a_program_is_the_service_of_the_page(service: Service) -> None:
    behaviour = ask(service)
    invalid = 400 if service is TURNPIKE else 422
    assert behaviour.statuses == {
        "a prediction": 200,
        "no key": 401,
        "a wrong key": 401,
        "no JSON": invalid,
        "63 numbers": invalid,
        "a body of more than 64 KiB": 413,
        "the same in chunks": 413,
        "readiness, without a key": 200,
        "metrics, without a key": 401 if service is TURNPIKE else 200,
    }
    assert 1 <= behaviour.runs <= REQUESTS
    (expected,) = open_model(MODEL).run({"x": rows_of_requests().reshape(-1, 1, 8, 8)}, ["output"])
    np.testing.assert_allclose(behaviour.scores, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("service", ALL_SERVICES, ids=lambda service: service.name)
def test_the_page_shows_the_program(service: Service) -> None:
    ast.parse(service.source)
    assert f"```py\n{service.source}```\n" in PAGE, f"copy {service.file} into docs/how-to/coming-from.md"


def test_the_pages_have_the_line_counts() -> None:
    counts = [str(service.line_count()) for service in ALL_SERVICES]
    assert f"| lines | {' | '.join(counts)} |" in PAGE
    page = (DOCS / "how-to" / "fastapi.md").read_text(encoding="utf-8")
    assert re.findall(r"_service\.py\) \| (\d+) \|", page) == counts


@pytest.mark.parametrize("name", ["LitServe", "BentoML"])
def test_the_programs_of_rivals_say_which_version_was_tried(name: str) -> None:
    (service,) = [service for service in ALL_SERVICES if service.name == name]
    assert service.rival is not None
    requirements = (RIVALS / service.rival / "requirements.txt").read_text(encoding="utf-8")
    (version,) = re.findall(rf"^{service.rival}==(\S+)$", requirements, re.MULTILINE)
    assert service.source.startswith(f'"""The service in {name} {version}: ')
    assert re.search(rf"{name}\s{re.escape(version)}", PAGE)
