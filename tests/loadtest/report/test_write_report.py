"""Reports are written completely or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.loadtest_records import mixed_record, sample_record
from turnpike.loadtest.errors import LoadTestError, UsageError
from turnpike.loadtest.report.document import build_document
from turnpike.loadtest.report.page import render_report
from turnpike.loadtest.report.write_report import prepare_folder, write_report


def test_a_report_has_a_page_and_a_json_file(tmp_path: Path) -> None:
    path = write_report(tmp_path / "a" / "report", mixed_record())
    assert path == tmp_path / "a" / "report" / "loadtest.html"
    report = json.loads(path.with_name("loadtest.json").read_text(encoding="utf-8"))
    assert report == build_document(mixed_record())
    assert path.read_text(encoding="utf-8") == render_report(report)
    assert sorted(file.name for file in path.parent.iterdir()) == ["loadtest.html", "loadtest.json"]


def test_a_report_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full halfway, an older report stays as it was, and no other file is left."""
    write_report(tmp_path, sample_record())
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write = Path.write_text

    def full(path: Path, text: str, encoding: str) -> None:
        write(path, text[:1000], encoding)
        if path.name.endswith("html"):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(LoadTestError, match="could not be written .No space left"):
        write_report(tmp_path, mixed_record())
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_folder_is_checked_before_the_load(tmp_path: Path) -> None:
    prepare_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="--report: expected a writable folder"):
        prepare_folder(tmp_path / "file")
