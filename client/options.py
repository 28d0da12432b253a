"""Options of a client and of a single call: timeouts, headers, and gates to move."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypedDict

# a header holds no lines, and no spaces around its value
VALID_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALID_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
# the names that the client writes itself
OWN_HEADERS = frozenset(
    {"content-length", "content-type", "inference-header-content-length", "x-request-timeout-ms"}
)


class CallOptions(TypedDict, total=False):
    """Options of one call.

    Attributes:
        timeout: Seconds for the call and its retries, in place of the client's.
        headers: Headers to send, or metadata of gRPC, beside the client's.
        request_id: The id of the request, which the service logs and returns.
    """

    timeout: float
    headers: Mapping[str, str]
    request_id: str


class Moves(CallOptions, total=False):
    """The gates to move: a number is a layer, a name is one gate. And options of the call."""

    close: Sequence[int | str]
    open: Sequence[int | str]
    shift: Mapping[str, float]


def expect_number(name: str, seconds: object) -> None:
    """Raise ValueError unless these are seconds of a timeout."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise ValueError(f"{name}: expected a number of seconds from 0, got {seconds!r}")


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers, with names in lower case; raises ValueError or TypeError, which show no value."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers: expected a dict of texts, got {type(headers).__name__}")
    checked = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not VALID_NAME.fullmatch(name) or name.lower() in OWN_HEADERS:
            raise ValueError(f"headers: expected the name of a header of yours, got {name!r}")
        if not isinstance(value, str):
            raise TypeError(f"headers: {name}: expected a text, got {type(value).__name__}")
        if not VALID_VALUE.fullmatch(value):
            raise ValueError(
                f"headers: {name}: expected printable ASCII characters, without spaces or lines around them"
            )
        checked[name.lower()] = value
    return checked
