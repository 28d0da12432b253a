"""Call a server with tritonclient's two asyncio clients, and print the results as JSON.

Usage: triton_aio_client.py HTTP_HOST:PORT GRPC_HOST:PORT MODEL
"""

import asyncio
import json
import sys

import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
import tritonclient.http.aio as triton_http_aio
from tritonclient.utils import InferenceServerException

http_address, grpc_address, model = sys.argv[1:]
rows = np.linspace(0, 16, 3 * 64, dtype=np.float32).reshape(3, 1, 8, 8)


async def refused(call):
    try:
        await call
    except InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}
    return None


async def call(client, library, **compression):
    given = library.InferInput("x", rows.shape, "FP32")
    given.set_data_from_numpy(rows)
    output = library.InferRequestedOutput("output")

    async def outputs(**options):
        answer = await client.infer(model, [given], outputs=[output], **options)
        return answer.as_numpy("output").tolist()

    results = {
        "ready": [
            await client.is_server_live(),
            await client.is_server_ready(),
            await client.is_model_ready(model),
            await client.is_model_ready("absent"),
        ],
        "server": (await client.get_server_metadata(**as_json(library)))["name"],
        "metadata": (await client.get_model_metadata(model, "1", **as_json(library)))["versions"],
        "raw": await outputs(request_id="seven", timeout=20_000_000),
        "compressed": [
            await outputs(**{key: name}) for key in compression.values() for name in ("gzip", "deflate")
        ],
        "together": await asyncio.gather(*(outputs() for _ in range(16))),
        "model": await refused(client.infer("absent", [given])),
        "version": await refused(client.infer(model, [given], model_version="7")),
        "unload": await refused(client.unload_model(model)),
    }
    await client.get_model_config(model)
    await client.get_inference_statistics(model)
    await client.get_model_repository_index()
    return results


def as_json(library):
    return {"as_json": True} if library is triton_grpc else {}


async def stream(client):
    given = triton_grpc.InferInput("x", rows.shape, "FP32")
    given.set_data_from_numpy(rows)

    async def requests():
        for name in (model, "absent", model):
            yield {"model_name": name, "inputs": [given], "request_id": name}

    return [
        error.message() if error else [result.get_response().id, result.as_numpy("output").tolist()]
        async for result, error in client.stream_infer(requests())
    ]


async def main():
    async with triton_http_aio.InferenceServerClient(http_address) as client:
        over_http = await call(client, triton_http, request="request_compression_algorithm")
    async with triton_grpc_aio.InferenceServerClient(grpc_address) as client:
        over_grpc = await call(client, triton_grpc, both="compression_algorithm")
        streamed = await stream(client)
    return {"rows": rows.tolist(), "http": over_http, "grpc": over_grpc, "stream": streamed}


json.dump(asyncio.run(main()), sys.stdout)
