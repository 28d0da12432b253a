"""The headers Accept and Accept-Encoding."""

from __future__ import annotations

import pytest

from turnpike.service.http.accept import preferred_encoding


@pytest.mark.parametrize(
    ("header", "encoding"),
    [
        ("", None),
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        # of equals, the first that is offered
        ("deflate, gzip", "gzip"),
        ("gzip, deflate, br, zstd", "gzip"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("GZIP ; Q=1", "gzip"),
        ("br, zstd, x-gzip", None),
        # refused
        ("gzip;q=0", None),
        ("gzip;q=0.000, deflate", "deflate"),
        ("gzip;q=nan, deflate;q=2", None),
        # anything else, or anything
        ("*", "gzip"),
        ("gzip;q=0, *", "deflate"),
        ("gzip;q=0.5, *;q=0.6", "deflate"),
        ("*;q=0", None),
        # none is preferred, or must not be, which is ignored
        ("identity", None),
        ("identity, gzip;q=0.5", None),
        ("identity;q=0.5, gzip", "gzip"),
        ("identity, gzip", "gzip"),
        ("identity;q=0", None),
        ("identity;q=0, br", None),
        (";,;q=1,,", None),
    ],
)
def test_the_preferred_encoding_is_chosen(header: str, encoding: str | None) -> None:
    """Weights from 0 to 1 decide, as in RFC 9110."""
    assert preferred_encoding(header, ("gzip", "deflate")) == encoding
