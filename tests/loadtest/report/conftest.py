"""Fixtures of the tests of reports."""

from __future__ import annotations

import pytest

from tests.support.loadtest_records import RECORDS
from turnpike.loadtest.measure.record import Record


@pytest.fixture(params=RECORDS)
def any_record(request: pytest.FixtureRequest) -> Record:
    return RECORDS[request.param]()
