"""Every error that `models` raises on purpose.

ModelsError
├── ConfigError        a network, preset or training setting with an invalid value
├── ShapeError         a tensor that does not fit the network or layer it was passed to
├── DataError          a data set that is missing, damaged or malformed
├── CheckpointError    a checkpoint that is missing, damaged, or belongs to another network or run
│   └── MissingRecordError   a .safetensors file without turnpike's record: weights of another program
└── TrainingError      training that cannot continue (the loss is NaN or infinite)

A file that cannot be written (the disk is full, say) is a WriteError of `common.durable_files`, an OSError.
Each message is one sentence that says what was expected, what came instead, and where.
"""

from __future__ import annotations


class ModelsError(Exception):
    """Base class: an error that is reported to the user as a message, without a traceback."""

    # exit status of the command line: 1 for a failed job, 2 for wrong usage
    exit_status = 1


class ConfigError(ModelsError, ValueError):
    """A setting has an invalid value. The message names the setting, its value and the valid ones."""

    exit_status = 2


class ShapeError(ModelsError, ValueError):
    """A tensor has the wrong shape or dtype for the layer or network it was passed to."""


class DataError(ModelsError):
    """A data set cannot be read."""


class CheckpointError(ModelsError):
    """A checkpoint cannot be read, or belongs to another network or run."""


class MissingRecordError(CheckpointError):
    """A .safetensors file has no record of turnpike, so another program wrote it."""


class TrainingError(ModelsError):
    """Training cannot continue."""
