"""Call a server with kserve's gRPC client, and print the results as JSON.

Usage: kserve_grpc_client.py HOST:PORT MODEL
"""

import asyncio
import json
import logging
import sys

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest
from kserve.protocol.infer_type import RequestedOutput

address, model = sys.argv[1:]
rows = np.linspace(0, 16, 3 * 64, dtype=np.float32).reshape(3, 1, 8, 8)
# it logs errors that it raises
logging.disable()


def request(name=model, raw=True, request_id=None, outputs=None):
    given = InferInput("x", list(rows.shape), "FP32")
    given.set_data_from_numpy(rows, binary_data=raw)
    return InferRequest(model_name=name, infer_inputs=[given], request_id=request_id, request_outputs=outputs)


async def refused(call):
    try:
        await call
    except grpc.RpcError as error:
        return {"status": error.code().name, "message": error.details()}
    return None


async def main():
    async with InferenceGRPCClient(address) as client:
        raw = await client.infer(request(request_id="seven"))
        typed = await client.infer(request(raw=False, request_id="eight"))
        gate = "layer03.transform_gate"
        one = await client.infer(
            request(outputs=[RequestedOutput(gate)]), headers=(("x-request-id", "nine"),)
        )
        return {
            "rows": rows.tolist(),
            "live": await client.is_server_live(),
            "ready": await client.is_server_ready(),
            "model_ready": await client.is_model_ready(model),
            "absent_ready": await client.is_model_ready("absent"),
            "raw": [raw.id, raw.model_version, raw.outputs[0].as_numpy().tolist()],
            "typed": [typed.id, typed.model_version, typed.outputs[0].as_numpy().tolist()],
            "gate": one.outputs[0].as_numpy().tolist(),
            "absent": await refused(client.infer(request(name="absent"))),
            "output": await refused(client.infer(request(outputs=[RequestedOutput("absent")]))),
        }


json.dump(asyncio.run(main()), sys.stdout)
