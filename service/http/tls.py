"""What HTTPS is spoken with."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from service.errors import SettingError

if TYPE_CHECKING:
    from service.config.settings import Settings


def tls(settings: Settings) -> ssl.SSLContext | None:
    """The context of these settings, None without one; a SettingError says what is wrong with its files."""
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    cert, key = str(settings.tls_cert), str(settings.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def passphrase() -> str:
        # left to itself, OpenSSL would ask for it on the terminal
        raise SettingError(f"--tls-key: expected a key without a passphrase, got {key!r}, which has one")

    try:
        # the next step alone would not say which of both files is at fault
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert)
    except OSError as error:
        raise SettingError(f"--tls-cert: expected a certificate chain (PEM), got {cert!r}") from error
    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:
        said = f"--tls-key: expected the private key (PEM) of the certificate {cert!r}, got {key!r}"
        reason = getattr(error, "reason", None)
        raise SettingError(said + (f" ({reason.lower().replace('_', ' ')})" if reason else "")) from error
    return context
