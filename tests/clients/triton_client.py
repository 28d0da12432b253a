"""Call a server with tritonclient, and print the results as JSON. Usage: triton_client.py HOST:PORT MODEL"""

import json
import sys

import numpy as np
import tritonclient.http as triton

url, model = sys.argv[1:]
client = triton.InferenceServerClient(url, concurrency=4)
rows = np.linspace(0, 16, 3 * 64, dtype=np.float32).reshape(3, 1, 8, 8)
said = {
    "live": client.is_server_live(),
    "ready": client.is_server_ready(),
    "model_ready": client.is_model_ready(model),
    "version_ready": client.is_model_ready(model, "1"),
    "absent_ready": client.is_model_ready("absent"),
    "server": client.get_server_metadata(),
    "metadata": client.get_model_metadata(model),
    "config": client.get_model_config(model),
    "index": client.get_model_repository_index(),
    "rows": rows.tolist(),
}


def infer(binary_in, binary_out, compression=None, **options):
    given = triton.InferInput("x", rows.shape, "FP32")
    given.set_data_from_numpy(rows, binary_data=binary_in)
    requested = triton.InferRequestedOutput("output", binary_data=binary_out)
    return client.infer(
        model,
        [given],
        outputs=[requested],
        request_compression_algorithm=compression,
        response_compression_algorithm=None,
        **options,
    )


said["binary"] = infer(True, True).as_numpy("output").tolist()
said["json"] = infer(False, False).as_numpy("output").tolist()
said["mixed"] = infer(True, False).as_numpy("output").tolist()
said["gzip"] = infer(True, True, "gzip").as_numpy("output").tolist()
said["deflate"] = infer(False, True, "deflate").as_numpy("output").tolist()
named = infer(True, True, request_id="seven", model_version="1", timeout=20_000_000)
said["id"] = named.get_response()["id"]
said["version"] = named.get_response()["model_version"]

given = triton.InferInput("x", rows.shape, "FP32")
given.set_data_from_numpy(rows)
classes = triton.InferRequestedOutput("output", binary_data=True, class_count=2)
said["classes"] = [
    [text.decode() for text in row]
    for row in client.infer(model, [given], outputs=[classes]).as_numpy("output")
]
gate = triton.InferRequestedOutput("layer03.transform_gate", binary_data=True)
said["gate"] = client.infer(model, [given], outputs=[gate]).as_numpy("layer03.transform_gate").tolist()
said["everything"] = client.infer(model, [given]).as_numpy("output").tolist()

pending = [client.async_infer(model, [given]) for _ in range(16)]
said["async"] = [answer.get_result().as_numpy("output").tolist() == said["binary"] for answer in pending]


def refused(call):
    try:
        call()
    except triton.InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}
    return None


wrong = triton.InferInput("x", [1, 8, 8], "FP32")
wrong.set_data_from_numpy(rows[0])
said["wrong_shape"] = refused(lambda: client.infer(model, [wrong]))
said["no_model"] = refused(lambda: client.infer("absent", [given]))
said["no_output"] = refused(
    lambda: client.infer(model, [given], outputs=[triton.InferRequestedOutput("absent")])
)
said["admin"] = refused(lambda: client.unload_model(model))
said["statistics"] = client.get_inference_statistics(model)
json.dump(said, sys.stdout)
