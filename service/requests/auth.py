"""API keys: each route has a level (open, api or admin), and all levels but `open` require a key.

A key is sent as `Authorization: Bearer KEY` or `X-Api-Key: KEY`. Without API keys in the settings, the api
level is open to everyone. Without an admin key, the admin level is closed to everyone. The admin key also
opens the api level.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal

from turnpike.service.config.settings import Settings
from turnpike.service.errors import ForbiddenError, SettingError, UnauthorizedError

AccessLevel = Literal["open", "api", "admin"]
Headers = Iterable[tuple[bytes, bytes]]

NO_KEY = "expected a key in the header Authorization (Bearer …) or X-Api-Key, got none"
UNKNOWN_KEY = "expected a key that is known here, got another"
# the admin level consists of loading and unloading models
ADMIN_OFF = (
    "loading and unloading models is off here: it is on where an admin key is set; "
    "model-analyzer measures what is served with --reload-model-disable"
)
NOT_ADMIN = "expected the admin key, got an API key"


class Authenticator:
    """Checks API keys. It stores digests, so that the time of a comparison reveals no part of a key."""

    def __init__(self, api_keys: Iterable[str] = (), admin_key: str | None = None) -> None:
        self._api = [_digest(key.encode()) for key in api_keys]
        self._admin = [] if admin_key is None else [_digest(admin_key.encode())]

    @classmethod
    def from_settings(cls, settings: Settings) -> Authenticator:
        """Read the keys from the settings and from the files that they name. Raises SettingError."""
        api_keys = [_expect_key("api_keys", key) for key in settings.api_keys]
        if settings.api_keys_file is not None:
            api_keys += _read_keys("api_keys_file", settings.api_keys_file)
        admin_key = settings.admin_key
        if admin_key is not None:
            _expect_key("admin_key", admin_key)
        if settings.admin_key_file is not None:
            keys = _read_keys("admin_key_file", settings.admin_key_file)
            if admin_key is not None or len(keys) > 1:
                raise SettingError("admin_key_file: expected one admin key in all, got more")
            admin_key = keys[0]
        if admin_key is not None and admin_key in api_keys:
            raise SettingError("admin_key: expected a key of its own, got one of the API keys")
        return cls(api_keys, admin_key)

    def has_keys(self, level: AccessLevel) -> bool:
        """Whether there are keys for this level."""
        return bool(self._admin if level == "admin" else self._api)

    def check(self, level: AccessLevel, headers: Headers) -> None:
        """Raise UnauthorizedError or ForbiddenError unless the headers have a key for this level."""
        if level == "open" or (level == "api" and not self._api):
            return
        if level == "admin" and not self._admin:
            raise ForbiddenError(ADMIN_OFF)
        key = _read_key(headers)
        if key is None:
            raise UnauthorizedError(NO_KEY)
        digest = _digest(key)
        admin = _is_among(digest, self._admin)
        api = _is_among(digest, self._api)
        if not (admin or api):
            raise UnauthorizedError(UNKNOWN_KEY)
        if level == "admin" and not admin:
            raise ForbiddenError(NOT_ADMIN)


def _read_key(headers: Headers) -> bytes | None:
    key = None
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name == b"x-api-key":
            key = value.strip()
    return key


def _digest(key: bytes) -> bytes:
    return sha256(key).digest()


def _is_among(digest: bytes, known_digests: list[bytes]) -> bool:
    is_known = False
    for known_digest in known_digests:
        # compare with all of them: the time that it takes must not reveal which key matched
        is_known |= hmac.compare_digest(digest, known_digest)
    return is_known


def _read_keys(setting: str, path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise SettingError(f"{setting}: cannot read {path} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{setting}: expected a text file in UTF-8, and {path} is not") from error
    keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not keys:
        # an empty file would leave the routes open that it was meant to protect
        raise SettingError(f"{setting}: expected at least one key in {path}, got none")
    return [_expect_key(setting, key) for key in keys]


def _expect_key(setting: str, key: str) -> str:
    # what a header can contain; the message never shows the key
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise SettingError(f"{setting}: expected keys of printable ASCII characters without spaces")
    return key
