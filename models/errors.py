"""What can go wrong in `models`, and how it is said.

ModelsError
├── ConfigError        a network, preset or training setting that makes no sense
├── ShapeError         rows that do not fit the network (or the layer) they were given to
├── DataError          a data set that is missing, damaged or not what it claims to be
├── CheckpointError    a checkpoint that is missing, damaged, foreign or of another network
└── TrainingError      training that cannot go on (a loss that is no longer a number)

Each message is one sentence for a person: what was expected, what came, and where.
"""

from __future__ import annotations


class ModelsError(Exception):
    """Anything that this package reports to its user rather than crashing on."""

    # of the command line: 1 is a job that failed, 2 is wrong use
    exit_status = 1


class ConfigError(ModelsError, ValueError):
    """A setting has no meaning: the message names it, its value and the valid ones."""

    exit_status = 2


class ShapeError(ModelsError, ValueError):
    """A tensor has the wrong shape or dtype for where it was sent."""


class DataError(ModelsError):
    """A data set cannot be read."""


class CheckpointError(ModelsError):
    """A checkpoint cannot be read, or does not belong here."""


class TrainingError(ModelsError):
    """Training met something that it cannot honestly go on from."""
