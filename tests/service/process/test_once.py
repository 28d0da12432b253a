"""Files that can be read once, for all workers."""

from __future__ import annotations

import os
from pathlib import Path

from service.config.settings import Settings
from service.http.auth import Authenticator
from service.process.relaunch import buffer_pipes


def piped(content: bytes) -> Path:
    """A pipe with something in it, as a shell makes one for `<(…)`."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return Path(f"/dev/fd/{reading}")


def test_a_pipe_can_be_read_by_every_process(tmp_path: Path) -> None:
    """Again and again, by those that are forked, too; files that stay are left where they are."""
    (tmp_path / "admin").write_text("boss-key\n")
    pipe = piped(b"first-key\nsecond-key\n")
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


def test_nothing_is_copied_that_can_be_read_again(tmp_path: Path) -> None:
    """A file that is exchanged is seen by the next worker."""
    (tmp_path / "keys").touch()
    settings = Settings(api_keys_file=tmp_path / "keys")
    assert buffer_pipes(settings) == settings
