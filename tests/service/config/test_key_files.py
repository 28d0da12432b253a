"""Files of keys: those that all may read, and pipes, which are read once, and then by every process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from turnpike.service.config.key_files import buffer_pipes, exposed_keys
from turnpike.service.config.settings import Settings
from turnpike.service.errors import SettingError
from turnpike.service.requests.auth import Authenticator


def pipe_with(content: bytes) -> Path:
    """A pipe with this content, as a shell makes one for `<(...)`."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return Path(f"/dev/fd/{reading}")


def test_a_buffered_pipe_can_be_read_by_every_process(tmp_path: Path) -> None:
    """It can be read repeatedly, and by forked processes."""
    (tmp_path / "admin").write_text("boss-key\n")
    pipe = pipe_with(b"first-key\nsecond-key\n")
    settings = buffer_pipes(Settings(api_keys_file=pipe, admin_key_file=tmp_path / "admin"))
    os.close(int(pipe.name))
    assert settings.admin_key_file == tmp_path / "admin"
    assert settings.tls_cert is None
    for _ in range(2):
        Authenticator.from_settings(settings).check("api", [(b"x-api-key", b"second-key")])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            Authenticator.from_settings(settings).check("api", [(b"x-api-key", b"first-key")])
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert settings.api_keys_file is not None
    os.close(int(settings.api_keys_file.name))


def test_ordinary_files_are_not_buffered(tmp_path: Path) -> None:
    """The next worker sees a file that was replaced."""
    (tmp_path / "keys").touch()
    settings = Settings(api_keys_file=tmp_path / "keys")
    assert buffer_pipes(settings) == settings


def test_a_missing_pipe_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    settings = Settings(api_keys_file=tmp_path / "keys")
    (tmp_path / "keys").unlink()
    with pytest.raises(SettingError, match="^api_keys_file: cannot read .* \\(No such file or directory\\)$"):
        buffer_pipes(settings)


def test_files_of_keys_that_all_may_read_are_named(tmp_path: Path) -> None:
    keys, admin, pipe = tmp_path / "keys", tmp_path / "admin", tmp_path / "pipe"
    for path in (keys, admin):
        path.touch()
        path.chmod(0o600)
    os.mkfifo(pipe, 0o644)
    assert exposed_keys(Settings(api_keys_file=keys, admin_key_file=pipe)) == []
    in_container = Settings().model_copy(update={"api_keys_file": Path("/run/secrets/keys")})
    assert exposed_keys(in_container) == []
    keys.chmod(0o644)
    assert exposed_keys(Settings(api_keys_file=keys, admin_key_file=admin)) == [
        f"api_keys_file: every user of this machine may read {keys}: chmod o-r {keys}"
    ]
