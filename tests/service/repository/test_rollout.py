"""The rollout: what all workers serve after changes and faults in the repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.rollout_workers import Workers, run, start, write
from turnpike.service.errors import SettingError
from turnpike.service.repository.deployment import NEW, ON_REQUEST, Deployment, UnavailableModel
from turnpike.service.repository.location import Location
from turnpike.service.repository.rollout import Rollout
from turnpike.service.repository.scan import MODEL_FILE, scan


def test_the_first_scan_serves_the_repository(tmp_path: Path, workers: Workers) -> None:
    """All workers prepare, then all commit. A worker that starts later gets the same deployment."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    write(tmp_path, "other", 7)
    rollout = start(tmp_path, workers)
    assert [name for name, _ in workers.requests] == ["prepare", "commit"]
    assert rollout.names == ["net/2", "other/7"]
    assert workers.committed.models["net"] == scan(tmp_path).models["net"][1:]
    assert rollout.deployment_record == workers.committed.to_json()
    assert rollout.deployment_record["serial"] == 1


@pytest.mark.parametrize(("policy", "names"), [("all", ["net/1", "net/2"]), ("1,3", ["net/1"]), ("3", [])])
def test_the_policy_selects_versions(tmp_path: Path, workers: Workers, policy: str, names: list[str]) -> None:
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    assert start(tmp_path, workers, policy).names == names


def test_an_invalid_policy_is_a_setting_error(tmp_path: Path, workers: Workers) -> None:
    """It is raised before anything is scanned."""
    with pytest.raises(SettingError, match="versions: expected"):
        Rollout(Location(tmp_path), "newest", workers.broadcast)


def test_an_empty_repository_is_committed(tmp_path: Path, workers: Workers) -> None:
    """Workers must know that there is nothing to wait for."""
    assert start(tmp_path, workers).names == []
    assert workers.committed == Deployment(serial=1)


def test_without_changes_no_request_is_sent(tmp_path: Path, workers: Workers) -> None:
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    run(rollout.rescan(), rollout.rescan(explicit=False), rollout.load("net"))
    assert workers.requests == []


def test_a_missing_repository_is_an_error_only_at_the_start(tmp_path: Path, workers: Workers) -> None:
    """At the start it is an invalid setting; later, what is served stays."""
    with pytest.raises(SettingError, match="models: expected a folder"):
        start(tmp_path / "gone", workers)
    write(tmp_path / "root", "net", 1)
    rollout = start(tmp_path / "root", workers)
    (tmp_path / "root").rename(tmp_path / "away")
    run(rollout.rescan())
    assert rollout.names == ["net/1"]
    answer = run(rollout.load("net"))
    assert answer == {
        "ok": False,
        "known": True,
        "reason": "model 'net' cannot be loaded: the repository cannot be read",
    }


def test_a_poll_waits_until_files_stop_changing(tmp_path: Path, workers: Workers) -> None:
    """A file that changes between two scans may not be complete. Other models do not wait for it."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"go")
    write(tmp_path, "other", 1)
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/1"]
    assert workers.committed.left_out == (
        UnavailableModel("net", 2, NEW),
        UnavailableModel("other", 1, NEW),
    )
    write(tmp_path, "net", 2, b"goo")
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/1", "other/1"]
    assert workers.committed.left_out == (UnavailableModel("net", 2, NEW),)
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/2", "other/1"]
    assert {model.reason for model in workers.committed.left_out} == {"--versions latest serves version 2"}


def test_a_file_that_keeps_changing_causes_no_further_requests(tmp_path: Path, workers: Workers) -> None:
    """A copy may take minutes; the workers hear of it once."""
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    for content in (b"g", b"go", b"goo"):
        write(tmp_path, "net", 1, content)
        run(rollout.rescan(explicit=False))
    assert [name for name, _ in workers.requests] == ["commit"]
    assert workers.committed.left_out == (UnavailableModel("net", 1, NEW),)


def test_a_loaded_file_is_no_longer_new(tmp_path: Path, workers: Workers) -> None:
    """Whether a scan saw the file before it was replaced and loaded, or never."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"goo")
    run(rollout.rescan(explicit=False))
    write(tmp_path, "net", 2)
    run(rollout.load("net"))
    assert rollout.names == ["net/2"]
    assert [model.version for model in workers.committed.left_out] == [1]


def test_polls_log_once_that_the_repository_cannot_be_read(
    tmp_path: Path, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    """And once more when it is gone again."""
    root = tmp_path / "root"
    root.mkdir()
    rollout = start(root, workers)
    for warnings in (1, 2):
        root.rmdir()
        run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
        assert len([line for line in caplog.messages if "models that are served stay" in line]) == warnings
        root.mkdir()
        run(rollout.rescan(explicit=False))


def test_an_explicit_scan_accepts_changes_at_once(tmp_path: Path, workers: Workers) -> None:
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 1)
    run(rollout.rescan())
    assert rollout.names == ["net/1"]


def test_a_removed_model_is_unloaded(tmp_path: Path, workers: Workers) -> None:
    """Two scans must agree that it is gone."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    shutil.rmtree(tmp_path / "net")
    run(rollout.rescan(explicit=False))
    assert rollout.names == ["net/1"]
    run(rollout.rescan(explicit=False))
    assert rollout.names == []


def test_a_bad_version_leaves_the_old_one_in_service(tmp_path: Path, workers: Workers) -> None:
    """One worker that cannot load the file is enough. The reason is reported."""
    write(tmp_path, "net", 1)
    write(tmp_path, "other", 1)
    rollout = start(tmp_path, workers)
    write(tmp_path, "net", 2, b"bad")
    write(tmp_path, "other", 2)
    run(rollout.rescan())
    assert rollout.names == ["net/1", "other/2"]
    assert workers.committed.failed == (UnavailableModel("net", 2, "its file is damaged"),)
    assert rollout.failed == workers.committed.failed


def test_the_start_falls_back_to_the_highest_good_version(tmp_path: Path, workers: Workers) -> None:
    """The highest version that can be loaded counts as the latest, so a restart causes no outage."""
    for version, content in ((1, b"good"), (2, b"good"), (3, b"bad"), (4, b"bad")):
        write(tmp_path, "net", version, content)
    rollout = start(tmp_path, workers)
    assert rollout.names == ["net/2"]
    assert {failed.version for failed in rollout.failed} == {3, 4}


def test_a_bad_file_in_place_of_a_good_one_keeps_the_old_content(tmp_path: Path, workers: Workers) -> None:
    """No older version is served instead."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2)
    rollout = start(tmp_path, workers)
    served = workers.committed.models
    write(tmp_path, "net", 2, b"bad")
    run(rollout.rescan())
    assert workers.committed.models == served
    assert rollout.failed == (UnavailableModel("net", 2, "its file is damaged"),)


def test_a_bad_version_keeps_a_removed_one_in_service(tmp_path: Path, workers: Workers) -> None:
    """Version 1 is gone and 2 is bad: 1 is still served from memory."""
    write(tmp_path, "net", 1)
    rollout = start(tmp_path, workers)
    shutil.rmtree(tmp_path / "net" / "1")
    write(tmp_path, "net", 2, b"bad")
    run(rollout.rescan())
    assert rollout.names == ["net/1"]


def test_a_bad_file_is_loaded_again_only_if_it_changes(tmp_path: Path, workers: Workers) -> None:
    """Polling does not load it again and again, but a good file in its place is loaded."""
    write(tmp_path, "net", 1)
    write(tmp_path, "net", 2, b"bad")
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
    assert workers.requests == []
    write(tmp_path, "net", 2, b"good")
    run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
    assert rollout.names == ["net/2"]
    assert rollout.failed == ()


def test_a_failure_is_forgotten_with_its_file(tmp_path: Path, workers: Workers) -> None:
    """If the same file is there again, it is tried again. Otherwise failures would pile up."""
    write(tmp_path, "net", 1, b"bad")
    rollout = start(tmp_path, workers)
    assert rollout.names == []
    (tmp_path / "net").rename(tmp_path / ".away")
    run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
    (tmp_path / ".away").rename(tmp_path / "net")
    workers.requests.clear()
    run(rollout.rescan(explicit=False), rollout.rescan(explicit=False))
    # it is new, then it is tried, and then its failure is known
    assert [name for name, _ in workers.requests] == ["commit", "prepare", "commit"]


def test_an_explicit_scan_tries_bad_files_again(tmp_path: Path, workers: Workers) -> None:
    """The cause may not have been the file."""
    write(tmp_path, "net", 1, b"bad")
    rollout = start(tmp_path, workers)
    workers.requests.clear()
    run(rollout.rescan())
    assert [name for name, _ in workers.requests] == ["prepare"]
    assert rollout.failed == (UnavailableModel("net", 1, "its file is damaged"),)


def test_skipped_models_are_reported(tmp_path: Path, workers: Workers) -> None:
    """Their reasons are in the index beside those of bad files."""
    (tmp_path / "root" / "net" / "1" / MODEL_FILE).mkdir(parents=True)
    rollout = start(tmp_path / "root", workers)
    assert rollout.failed == (UnavailableModel("net", 1, "model.onnx is not a file"),)
    answer = run(rollout.load("net"))
    assert answer["reason"] == "model 'net' cannot be loaded: model.onnx is not a file"


def test_models_on_request_are_served_when_they_are_wanted(tmp_path: Path, workers: Workers) -> None:
    """The index says how the others are loaded. Loading and unloading by a caller still work."""
    for name in ("net", "other"):
        write(tmp_path, name, 1)
    rollout = Rollout(Location(tmp_path), "latest", workers.broadcast, on_request=True)
    run(rollout.rescan())
    assert rollout.names == []
    assert [entry.reason for entry in workers.committed.left_out] == [ON_REQUEST, ON_REQUEST]
    run(rollout.want("net"))
    assert rollout.names == ["net/1"]
    assert workers.committed.left_out == (UnavailableModel("other", 1, ON_REQUEST),)
    assert run(rollout.load("other")) == {"ok": True}
    assert rollout.names == ["net/1"]
    run(rollout.unload("net"))
    assert rollout.names == []
    assert run(rollout.load("net")) == {"ok": True}
    assert rollout.names == ["net/1"]
    run(rollout.drop("net"))
    assert rollout.names == []
    assert (rollout.knows("net"), rollout.knows("gone")) == (True, False)
