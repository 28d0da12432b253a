"""Private folders and files, their identities, and JSON files with a digest."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from turnpike.service.weights.private_files import (
    SETTLED_NS,
    UntrustedError,
    boot_id,
    identity_of,
    is_settled,
    make_private_folder,
    network_file_system,
    private_identity,
    read_sealed,
    write_sealed,
)


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    for _ in range(2):
        make_private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(UntrustedError, match=f"other users may open {folder}: chmod 700 closes it"):
        make_private_folder(folder)


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UntrustedError, match="link is a link or a file"):
        make_private_folder(tmp_path / "link")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_private_folder(tmp_path / "mine")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(UntrustedError, match="mine belongs to another user"):
        make_private_folder(tmp_path / "mine")
    write = tmp_path / "file"
    write.write_bytes(b"")
    with pytest.raises(UntrustedError, match="belongs to another user"):
        private_identity(write)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "file"
    file.touch()
    file.chmod(mode)
    with pytest.raises(UntrustedError, match=f"other users may write {file}"):
        private_identity(file)


def test_the_identity_changes_with_the_content_and_cannot_be_set_back(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"one")
    os.utime(file, ns=(1, 1))
    before = identity_of(file.stat())
    with file.open("r+b") as opened:
        opened.write(b"two")
    os.utime(file, ns=(1, 1))
    after = identity_of(file.stat())
    assert before[:4] == after[:4]
    assert before[4] < after[4]


def test_a_file_that_was_written_just_now_is_not_settled() -> None:
    """Its next change may have the same time."""
    identity = (1, 1, 1, 10**18, 10**18 + 5)
    assert not is_settled(identity, 10**18 + SETTLED_NS)
    assert is_settled(identity, 10**18 + SETTLED_NS + 6)


def test_network_file_systems_are_recognized(tmp_path: Path) -> None:
    """By the number of their device, as in /proc/self/mountinfo."""
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    line = "36 35 {} / /home rw,noatime shared:1 - {} server:/home rw\n"
    for kind, expected in {"nfs4": "nfs4", "fuse.sshfs": "fuse.sshfs", "ext4": None}.items():
        mounts.write_text(line.format("98:0", "nfs") + line.format(number, kind))
        assert network_file_system(tmp_path, mounts) == expected
    assert network_file_system(tmp_path, tmp_path / "none") is None
    assert network_file_system(tmp_path) is None


def test_what_was_sealed_is_read_back(tmp_path: Path) -> None:
    """The file is private and whole, and nothing is left beside it."""
    for content in ({"b": [1, None], "a": "ä"}, 3):
        write_sealed(tmp_path / "file", content)
        assert read_sealed(tmp_path / "file") == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("damaged", [b"", b"{}", b"[1]", b"\xff", b"null"])
def test_a_damaged_sealed_file_counts_as_none(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / "file").write_bytes(damaged)
    assert read_sealed(tmp_path / "file") is None
    assert read_sealed(tmp_path / "none") is None


def test_changed_content_does_not_fit_its_seal(tmp_path: Path) -> None:
    write_sealed(tmp_path / "file", {"digest": "a"})
    sealed = json.loads((tmp_path / "file").read_text())
    sealed["content"]["digest"] = "b"
    (tmp_path / "file").write_text(json.dumps(sealed))
    assert read_sealed(tmp_path / "file") is None


def test_a_start_of_the_machine_has_a_name() -> None:
    assert boot_id() == boot_id() != ""
