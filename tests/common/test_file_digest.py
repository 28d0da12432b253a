"""Digests of files."""

from __future__ import annotations

from pathlib import Path

from turnpike.common.file_digest import sha256_of


def test_the_digest_is_that_of_sha256(tmp_path: Path) -> None:
    """An example of the standard, FIPS 180."""
    (tmp_path / "abc").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of(tmp_path / "abc") == expected
