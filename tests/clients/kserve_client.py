"""Call a server with kserve's client, and print the results as JSON. Usage: kserve_client.py URL MODEL"""

import asyncio
import json
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

url, model = sys.argv[1:]
rows = np.linspace(0, 16, 3 * 64, dtype=np.float32).reshape(3, 1, 8, 8)


async def main():
    second = InferenceRESTClient(RESTConfig(protocol="v2", timeout=30))
    first = InferenceRESTClient(RESTConfig(protocol="v1", timeout=30))
    said = {
        "rows": rows.tolist(),
        "live": await second.is_server_live(url),
        "live_in_v1": await first.is_server_live(url),
        "ready": await second.is_server_ready(url),
        "model_ready": await second.is_model_ready(url, model),
    }
    for name, binary in (("binary", True), ("json", False)):
        given = InferInput("x", list(rows.shape), "FP32")
        given.set_data_from_numpy(rows, binary_data=binary)
        request = InferRequest(
            model_name=model,
            infer_inputs=[given],
            request_id=name,
            request_outputs=[RequestedOutput("output", parameters={"binary_data": binary})],
        )
        answer = await second.infer(url, request, model_name=model)
        said[name] = answer.outputs[0].as_numpy().tolist()
        said[name + "_id"] = answer.id
    said["predictions"] = (await first.infer(url, {"instances": rows.tolist()}, model_name=model))[
        "predictions"
    ]
    json.dump(said, sys.stdout)


asyncio.run(main())
