"""Which names of the user's modules could mean ours."""

from __future__ import annotations

from export.sources.module.user_imports import OWN_PACKAGES
from tests.support.source_files import PACKAGES


def test_the_own_packages_are_those_of_the_project() -> None:
    """A user's folder with the name of one of them needs no __init__.py."""
    assert {*PACKAGES, "turnpike"} == OWN_PACKAGES
