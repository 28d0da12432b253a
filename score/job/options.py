"""What is written for each row. All parts of a job have the same."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class OnError(StrEnum):
    """What happens to rows that cannot be scored."""

    FAIL = "fail"
    NULL = "null"
    REJECT = "reject"


@dataclass(frozen=True)
class OutputOptions:
    """What is written for each row.

    Attributes:
        gates: Whether the means of gates are columns of the output.
        warnings: Whether the output has a column of warnings.
        on_error: What happens to rows that cannot be scored.
        columns: The columns of predictions; all if empty.
        label_only: Whether the first of them is the only one.
        keep: The columns of the input beside them; None stands for all that the model does not read.
        source: Whether the output has the file and the number of each row.
        partition_by: The column whose values are folders; None if all files are in one folder.
    """

    gates: bool = False
    warnings: bool = False
    on_error: OnError = OnError.FAIL
    columns: tuple[str, ...] = ()
    label_only: bool = False
    keep: tuple[str, ...] | None = None
    source: bool = False
    partition_by: str | None = None
