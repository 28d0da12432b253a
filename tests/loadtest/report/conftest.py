"""Fixtures of the tests of reports."""

from __future__ import annotations

import pytest

from loadtest.measure.record import Record
from tests.support.loadtest_records import RECORDS


@pytest.fixture(params=RECORDS)
def any_record(request: pytest.FixtureRequest) -> Record:
    return RECORDS[request.param]()
