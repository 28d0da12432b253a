"""Call a server that has keys, and that lets a batch wait until it has 8 rows, and print the results as JSON.

Usage: triton_grpc_limits.py HOST:PORT MODEL API_KEY ADMIN_KEY
"""

import contextlib
import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton

address, model, api_key, admin_key = sys.argv[1:]
client = triton.InferenceServerClient(address)
reader, admin = {"authorization": f"Bearer {api_key}"}, {"authorization": f"Bearer {admin_key}"}


def rows(count):
    given = triton.InferInput("x", [count, 1, 8, 8], "FP32")
    given.set_data_from_numpy(np.zeros((count, 1, 8, 8), np.float32))
    return [given]


def infer(headers=reader, count=8, **options):
    return client.infer(model, rows(count), headers=headers, **options)


def outcome(call):
    try:
        return str(call())
    except triton.InferenceServerException as error:
        return [error.status(), error.message()]


def streamed(headers):
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)), headers=headers)
    # raises an error if the answer is already there
    with contextlib.suppress(triton.InferenceServerException):
        client.async_stream_infer(model, rows(8))
    result, error = answers.get(timeout=30)
    client.stop_stream()
    return [error.status(), error.message()] if error else str(result.as_numpy("output").shape)


def shape(headers):
    return lambda: infer(headers).as_numpy("output").shape


results = {
    "keys": {
        "none": outcome(shape(None)),
        "wrong": outcome(shape({"authorization": "Bearer other"})),
        "bearer": outcome(shape(reader)),
        "x-api-key": outcome(shape({"x-api-key": api_key})),
        "no key for health": outcome(client.is_server_ready),
        "stream without": streamed(None),
        "stream": streamed(reader),
    },
    "admin": {
        "unload by a reader": outcome(lambda: client.unload_model(model, headers=reader)),
        "unload": outcome(lambda: client.unload_model(model, headers=admin)),
        "ready": outcome(lambda: client.is_model_ready(model, headers=reader)),
        "infer": outcome(infer),
        "index": client.get_model_repository_index(headers=reader, as_json=True)["models"],
        "load": outcome(lambda: client.load_model(model, headers=admin)),
        "ready again": outcome(lambda: client.is_model_ready(model, headers=reader)),
        "load what there is not": outcome(lambda: client.load_model("absent", headers=admin)),
        "load a configuration": outcome(lambda: client.load_model(model, headers=admin, config="{}")),
    },
    "deadline of the client": outcome(lambda: infer(count=2000, client_timeout=0.001)),
    "deadline in microseconds": outcome(lambda: infer(count=2000, timeout=1)),
}
# a single row waits for others
answers = queue.Queue()
for _ in range(2):
    client.async_infer(model, rows(1), lambda result, error: answers.put(error), headers=reader)
refused, answered = answers.get(timeout=30), answers.get(timeout=30)
results["queue"] = [answered is None, refused.status(), refused.message()]
json.dump(results, sys.stdout)
