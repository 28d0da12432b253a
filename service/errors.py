"""What can go wrong in `service`, and how it is said.

ServiceError
├── ModelFileError     an .onnx file that onnxruntime cannot open, or whose manifest makes no sense
├── RunError           rows that the model cannot be run on
└── DeviceError        a provider that was asked for and is not there

Each message is one sentence for a person: what was expected, what came, and where.
"""

from __future__ import annotations


class ServiceError(Exception):
    """Anything that this package reports to its user rather than crashing on."""

    # of the command line: 1 is a job that failed, 2 is wrong use
    exit_status = 1


class ModelFileError(ServiceError):
    """A model file is missing, damaged, or says of itself what cannot be understood."""


class RunError(ServiceError):
    """The model takes no such rows, such as ids that it does not know."""


class DeviceError(ServiceError):
    """The machine lacks the device that was asked for."""

    exit_status = 2
