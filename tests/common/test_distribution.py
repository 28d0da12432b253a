"""The command that installs an extra, by where turnpike was installed from."""

from __future__ import annotations

import importlib.metadata
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.source_files import ROOT
from turnpike.common import distribution
from turnpike.common.distribution import install_command, missing_library, needing_extra

WHEEL = "turnpike_onnx-0.2.0-py3-none-any.whl"


def install_from(monkeypatch: pytest.MonkeyPatch, record: dict[str, Any] | None) -> None:
    """Let the metadata say where turnpike was installed from."""

    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return None if record is None else json.dumps(record)

    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [Installed()])


def test_name_and_version_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (project["name"], project["version"]) == (distribution.NAME, distribution.VERSION)


def test_a_clone_is_named_by_its_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    install_from(monkeypatch, {"url": folder.as_uri(), "dir_info": {}})
    assert install_command("serve") == f"pip install '{folder}[serve]'"
    install_from(monkeypatch, {"url": folder.as_uri(), "dir_info": {"editable": True}})
    assert install_command("serve,grpc") == f"pip install -e '{folder}[serve,grpc]'"


def test_a_wheel_is_named_by_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By its name alone if the file is gone, as in an image."""
    file = tmp_path / WHEEL
    install_from(monkeypatch, {"url": file.as_uri(), "archive_info": {}})
    assert install_command("client") == f"pip install '{WHEEL}[client]'"
    file.touch()
    assert install_command("client") == f"pip install '{file}[client]'"


def test_an_installation_without_an_address_is_named_by_its_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    install_from(monkeypatch, None)
    assert install_command("client") == f"pip install '{WHEEL}[client]'"

    monkeypatch.setattr(importlib.metadata, "distributions", lambda name: [])
    assert install_command("client") == f"pip install '{WHEEL}[client]'"


def test_the_index_is_named_once_it_has_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "IS_PUBLISHED", True)
    assert install_command("client") == "pip install 'turnpike-onnx[client]'"


@pytest.mark.parametrize(
    ("error", "library"),
    [
        (ModuleNotFoundError("", name="torch.nn"), "torch.nn"),
        (ModuleNotFoundError("", name="turnpike.service"), None),
        (ModuleNotFoundError("without a name"), None),
        (ImportError("cannot import name", name="torch"), None),
    ],
)
def test_only_a_missing_library_needs_an_extra(error: ImportError, library: str | None) -> None:
    """Other errors of an import stay as they are."""
    assert missing_library(error) == library
    with pytest.raises(type(error)) as raised, needing_extra("this", "serve"):
        raise error
    assert (raised.value is error) == (library is None)
