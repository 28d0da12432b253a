"""What prepared weights depend on."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnpike.service.weights.preparation import cpu_description, entry_name

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
model name\t: AMD EPYC
cpu MHz\t\t: 2600.000
flags\t\t: fpu avx2 {}
"""
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU part\t: 0xd0c\n"


def described(tmp_path: Path, text: str) -> str | None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    return cpu_description(path)


def test_the_instructions_of_a_cpu_count_and_its_frequency_does_not(tmp_path: Path) -> None:
    one = described(tmp_path, X86.format(""))
    assert one is not None
    assert one == described(tmp_path, X86.format("").replace("2600", "3100") * 2)
    assert one != described(tmp_path, X86.format("avx512f"))
    assert one != described(tmp_path, X86.format("").replace("EPYC", "Ryzen"))


def test_the_features_of_arm_are_read(tmp_path: Path) -> None:
    description = described(tmp_path, ARM)
    assert description is not None
    assert "Features: fp asimd" in description


@pytest.mark.parametrize("text", ["", "processor\t: 0\nmodel name\t: unknown\n"])
def test_a_cpu_without_known_instructions_is_none(tmp_path: Path, text: str) -> None:
    assert described(tmp_path, text) is None
    assert cpu_description(tmp_path / "none") is None


def test_this_machine_is_described() -> None:
    assert cpu_description()


def test_an_entry_is_named_by_all_that_it_depends_on() -> None:
    """The model's digest comes first, so that entries of a removed model are found."""
    name = entry_name("d" * 64, {"onnxruntime": "1"}, "a CPU")
    assert name.startswith("d" * 64 + "-")
    others = {
        entry_name("e" * 64, {"onnxruntime": "1"}, "a CPU"),
        entry_name("d" * 64, {"onnxruntime": "2"}, "a CPU"),
        entry_name("d" * 64, {"onnxruntime": "1"}, "another"),
    }
    assert len(others | {name}) == 4
