"""All cases, and how they are run against a server."""

from __future__ import annotations

from tests.conformance import binary_cases, grpc_cases, rest_cases
from tests.conformance.grpc_case import GrpcServer, Stubs
from tests.conformance.rest_case import RestServer

REST_CASES = [*rest_cases.CASES, *binary_cases.CASES]
GRPC_CASES = grpc_cases.CASES
REST_NAMES = [case.name for case in REST_CASES]
NAMES = REST_NAMES + [case.name for case in GRPC_CASES]


def differences(http: str, grpc: str, stubs: Stubs) -> dict[str, str]:
    """Where a server differs from the protocol: a sentence by the name of each case that fails.

    Args:
        http: Host and port of REST.
        grpc: Host and port of gRPC.
        stubs: The messages to call gRPC with.
    """
    grpc_server = GrpcServer(grpc, stubs)
    found: dict[str, str | None] = {**rest_differences(http)}
    found |= {case.name: grpc_server.difference(case) for case in GRPC_CASES}
    grpc_server.close()
    return {name: text for name, text in found.items() if text is not None}


def rest_differences(http: str, prefix: str = "") -> dict[str, str]:
    """Where a server differs in the cases of REST, with the prefix of its paths."""
    server = RestServer(http, prefix)
    found = {case.name: server.difference(case) for case in REST_CASES}
    return {name: text for name, text in found.items() if text is not None}
