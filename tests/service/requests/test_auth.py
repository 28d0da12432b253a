"""API keys and the admin key: the routes that they open, their sources, and that they are never shown."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Any

import pytest

from turnpike.service.config.settings import Settings
from turnpike.service.errors import ForbiddenError, SettingError, UnauthorizedError
from turnpike.service.requests import auth as module
from turnpike.service.requests.auth import AccessLevel, Authenticator

BOTH = Authenticator(["one", "two"], "root")


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"here"), (b"authorization", b"Bearer " + key.encode())]


def api_key(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"x-api-key", key.encode())]


@pytest.mark.parametrize(
    ("access", "level", "headers"),
    [
        (BOTH, "open", []),
        (BOTH, "open", bearer("wrong")),
        (BOTH, "api", bearer("one")),
        (BOTH, "api", bearer("two")),
        (BOTH, "api", api_key("two")),
        (BOTH, "api", [(b"authorization", b"bearer  two ")]),
        (BOTH, "api", [(b"authorization", b"Basic Zm9v"), *api_key("one")]),
        (BOTH, "api", bearer("root")),
        (BOTH, "admin", bearer("root")),
        (BOTH, "admin", api_key("root")),
        (Authenticator(), "api", []),
        (Authenticator((), "root"), "api", []),
        (Authenticator((), "root"), "admin", bearer("root")),
    ],
)
def test_a_valid_key_is_accepted(access: Authenticator, level: AccessLevel, headers: Any) -> None:
    """Either header may carry the key. Without API keys the api level is open to all."""
    access.check(level, headers)


@pytest.mark.parametrize(
    ("access", "level", "headers", "error"),
    [
        (BOTH, "api", [], UnauthorizedError),
        (BOTH, "api", [(b"authorization", b"one")], UnauthorizedError),
        (BOTH, "api", bearer(""), UnauthorizedError),
        (BOTH, "api", bearer("on"), UnauthorizedError),
        (BOTH, "api", bearer("onee"), UnauthorizedError),
        (BOTH, "api", bearer("ONE"), UnauthorizedError),
        (BOTH, "api", [(b"x-api-key", b"\xff\xfe")], UnauthorizedError),
        (BOTH, "admin", [], UnauthorizedError),
        (BOTH, "admin", bearer("wrong"), UnauthorizedError),
        (BOTH, "admin", bearer("one"), ForbiddenError),
        (Authenticator(["one"]), "admin", bearer("one"), ForbiddenError),
        (Authenticator(), "admin", [], ForbiddenError),
        (Authenticator((), "root"), "admin", [], UnauthorizedError),
    ],
)
def test_an_invalid_key_is_refused(
    access: Authenticator, level: AccessLevel, headers: Any, error: type[Exception]
) -> None:
    """401 for no key or a wrong one. Admin routes: 403 for an API key, or if there is no admin key."""
    with pytest.raises(error):
        access.check(level, headers)


def test_every_key_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of one length are compared, and all of them even if the first matches."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return hmac.compare_digest(first, second)

    monkeypatch.setattr(module, "hmac", type("Hmac", (), {"compare_digest": staticmethod(compare)}))
    Authenticator(["one", "two", "three"]).check("api", bearer("one"))
    assert len(compared) == 3
    assert {len(digest) for pair in compared for digest in pair} == {32}


def settings(**values: Any) -> Settings:
    return Settings.model_construct(**values)


def test_keys_come_from_files_and_settings(tmp_path: Path) -> None:
    """A file has one key per line. Blank lines and comments are ignored."""
    keys, admin = tmp_path / "keys", tmp_path / "admin"
    keys.write_text("# for the web shop\nshop\n\n  till  \n")
    admin.write_text("root\n")
    access = Authenticator.from_settings(
        settings(api_keys_file=keys, api_keys=("extra",), admin_key_file=admin)
    )
    for key in ("shop", "till", "extra", "root"):
        access.check("api", bearer(key))
    access.check("admin", bearer("root"))
    for key in ("# for the web shop", "#", ""):
        with pytest.raises(UnauthorizedError):
            access.check("api", bearer(key))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "api_keys_file: expected at least one key"),
        (b"\n# nothing\n", "api_keys_file: expected at least one key"),
        (b"\xff\xfe", "api_keys_file: expected a text file in UTF-8"),
        ("schlüssel-geheim".encode(), "api_keys_file: expected keys of printable ASCII"),
        (b"two words-geheim", "api_keys_file: expected keys of printable ASCII"),
    ],
)
def test_a_file_without_keys_is_a_setting_error(tmp_path: Path, text: bytes, message: str) -> None:
    """Otherwise the service would be open to all. The error does not show the key."""
    path = tmp_path / "keys"
    path.write_bytes(text)
    with pytest.raises(SettingError, match=message) as raised:
        Authenticator.from_settings(settings(api_keys_file=path))
    assert "geheim" not in str(raised.value)


def test_a_missing_key_file_is_a_setting_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="admin_key_file: cannot read .*absent .*No such file"):
        Authenticator.from_settings(settings(admin_key_file=tmp_path / "absent"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"api_keys": ("",)}, "api_keys: expected keys"),
        ({"admin_key": ""}, "admin_key: expected keys"),
        ({"api_keys": ("same",), "admin_key": "same"}, "admin_key: expected a key of its own"),
    ],
)
def test_invalid_keys_are_setting_errors(values: dict[str, Any], message: str) -> None:
    """Anybody could send an empty key."""
    with pytest.raises(SettingError, match=message):
        Authenticator.from_settings(settings(**values))


def test_a_second_admin_key_is_a_setting_error(tmp_path: Path) -> None:
    """A second one is refused, whether it is in the same file or in another setting."""
    path = tmp_path / "admin"
    path.write_text("root\nroot2\n")
    with pytest.raises(SettingError, match="expected one admin key"):
        Authenticator.from_settings(settings(admin_key_file=path))
    path.write_text("root\n")
    with pytest.raises(SettingError, match="expected one admin key"):
        Authenticator.from_settings(settings(admin_key_file=path, admin_key="other"))
