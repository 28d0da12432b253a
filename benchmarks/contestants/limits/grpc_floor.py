"""The floor of grpc.aio: a server of Python's gRPC library that answers with a constant, in two processes.

    python grpc_floor.py PORT

Both processes listen on the port, and the system divides the connections.
"""

from __future__ import annotations

import os
import sys

import grpc
import uvloop

# a ModelInferResponse with an output of ten values as raw contents
ANSWER = b"\x0a\x01S" + b"\x2a\x12\x0a\x06output\x12\x04FP32\x1a\x02\x01\x0a" + b"\x32\x28" + bytes(40)


async def answer(message: bytes, context: grpc.aio.ServicerContext) -> bytes:
    return ANSWER


async def serve(port: int) -> None:
    # without functions that read and write messages, they are bytes
    methods = {"ModelInfer": grpc.unary_unary_rpc_method_handler(answer)}
    server = grpc.aio.server(options=[("grpc.so_reuseport", 1)])
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)]
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    os.fork()
    uvloop.run(serve(int(sys.argv[1])))
