"""Parts that all tables of results share."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results.results_file import ResultLine


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; all columns but the first are aligned to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def describe_measurement(lines: Sequence[ResultLine]) -> str:
    """The date, the machine and the versions of a results file, as one sentence."""
    machine = lines[0]
    return (
        f"{machine['date']}, {machine['cpus']} CPUs ({machine['cpu']}), Python {machine['python']}, "
        f"onnxruntime {machine['onnxruntime']}."
    )


def counted(number: int, noun: str, plural_ending: str) -> str:
    """A number with its noun: 1 row, 2 rows."""
    return f"{number} {noun}{plural_ending * (number > 1)}"


def connections_label(connections: int) -> str:
    return counted(connections, "connection", "s")
