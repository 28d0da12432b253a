"""The examples in the docstrings run unchanged, with the bundled model at their address."""

from __future__ import annotations

import asyncio
import doctest
from types import ModuleType

import pytest
from sklearn.datasets import load_digits

from tests.support.live_server import Server
from turnpike.client import client as clients
from turnpike.client import results
from turnpike.client.client import Client

ADDRESS = "http://127.0.0.1:8000"


def examples(module: ModuleType) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.mark.parametrize("test", [*examples(clients), *examples(results)], ids=lambda test: test.name)
def test_the_examples_of_docstrings_run(bundled_server: Server, test: doctest.DocTest) -> None:
    for example in test.examples:
        example.source = example.source.replace(ADDRESS, bundled_server.url)
    with Client(bundled_server.url) as client:
        test.globs |= {"client": client, "digits": load_digits().data[:2], "asyncio": asyncio}
        failed, tried = doctest.DocTestRunner().run(test)
    assert tried > 0
    assert failed == 0


def test_every_class_with_methods_has_an_example() -> None:
    names = {test.name for test in [*examples(clients), *examples(results)]}
    assert names == {
        "turnpike.client.client.AsyncClient",
        "turnpike.client.client.Client",
        "turnpike.client.results.Gates",
    }
