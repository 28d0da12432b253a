"""Call a server with tritonclient over gRPC, and print the results as JSON.

Usage: triton_grpc_client.py HOST:PORT MODEL
"""

import json
import queue
import sys

import numpy as np
import tritonclient.grpc as triton

address, model = sys.argv[1:]
client = triton.InferenceServerClient(address)
rows = np.linspace(0, 16, 3 * 64, dtype=np.float32).reshape(3, 1, 8, 8)
given = triton.InferInput("x", rows.shape, "FP32")
given.set_data_from_numpy(rows)
output = triton.InferRequestedOutput("output")


def infer(*outputs, **options):
    return client.infer(model, [given], outputs=list(outputs) or None, **options)


def refused(call):
    try:
        call()
    except triton.InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}
    return None


def streamed(requests, **options):
    """The answers to these requests on one stream: the id with the numbers, or the error."""
    answers = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)), **options)
    for request in requests:
        client.async_stream_infer(**request)
    received = [answers.get(timeout=30) for _ in requests]
    client.stop_stream()
    return [
        error.message() if error else [result.get_response().id, result.as_numpy("output").tolist()]
        for result, error in received
    ]


results = {
    "rows": rows.tolist(),
    "live": client.is_server_live(),
    "ready": client.is_server_ready(),
    "model_ready": client.is_model_ready(model),
    "version_ready": client.is_model_ready(model, "1"),
    "absent_ready": client.is_model_ready("absent"),
    "server": client.get_server_metadata(as_json=True),
    "metadata": client.get_model_metadata(model, as_json=True),
    "config": client.get_model_config(model, as_json=True),
    "index": client.get_model_repository_index(as_json=True),
}
results["raw"] = infer(output).as_numpy("output").tolist()
results["everything"] = infer().as_numpy("output").tolist()
for algorithm in ("gzip", "deflate"):
    results[algorithm] = infer(output, compression_algorithm=algorithm).as_numpy("output").tolist()
named = infer(
    output, request_id="seven", model_version="1", priority=1, timeout=20_000_000, client_timeout=20
)
results["id"], results["version"] = named.get_response().id, named.get_response().model_version
results["no_id"] = infer().get_response().id
results["custom_parameters"] = (
    infer(parameters={"text": "a", "flag": True, "number": 3}).as_numpy("output").tolist()
)
classes = infer(triton.InferRequestedOutput("output", class_count=2)).as_numpy("output")
results["classes"] = [[text.decode() for text in row] for row in classes]
gate = "layer03.transform_gate"
results["gate"] = infer(triton.InferRequestedOutput(gate)).as_numpy(gate).tolist()
empty = triton.InferInput("x", [0, 1, 8, 8], "FP32")
empty.set_data_from_numpy(rows[:0])
results["empty"] = list(client.infer(model, [empty]).as_numpy("output").shape)

# answers in callbacks, and in a stream
pending = queue.Queue()
for _ in range(16):
    client.async_infer(model, [given], lambda result, error: pending.put((result, error)))
results["async"] = [pending.get(timeout=30) for _ in range(16)]
results["async"] = [
    error is None and result.as_numpy("output").tolist() == results["raw"]
    for result, error in results["async"]
]
requests = [{"model_name": model, "inputs": [given], "request_id": f"n{n}"} for n in range(100)]
requests[50] = {"model_name": "absent", "inputs": [given], "request_id": "bad"}
results["stream"] = streamed(requests)
results["stream_gzip"] = streamed(requests[:3], compression_algorithm="gzip", stream_timeout=30)

# the loop of clients for models that answer a request several times
answers = queue.Queue()
client.start_stream(lambda result, error: answers.put(result or error))
client.async_stream_infer(model, [given], request_id="last", enable_empty_final_response=True)
results["until_final"] = []
while True:
    answer = answers.get(timeout=30)
    response = answer.get_response()
    results["until_final"].append([response.id, answer.as_numpy("output").tolist()])
    if response.parameters["triton_final_response"].bool_param:
        break
client.stop_stream()

# what is refused, with the codes
wrong_rank = triton.InferInput("x", [1, 8, 8], "FP32")
wrong_rank.set_data_from_numpy(rows[0])
wrong_type = triton.InferInput("x", rows.shape, "FP64")
wrong_type.set_data_from_numpy(rows.astype(np.float64))
wrong_name = triton.InferInput("y", rows.shape, "FP32")
wrong_name.set_data_from_numpy(rows)
shared = triton.InferInput("x", rows.shape, "FP32")
shared.set_shared_memory("region", rows.nbytes)
results["refused"] = {
    "rank": refused(lambda: client.infer(model, [wrong_rank])),
    "datatype": refused(lambda: client.infer(model, [wrong_type])),
    "input": refused(lambda: client.infer(model, [wrong_name])),
    "no input": refused(lambda: client.infer(model, [])),
    "twice": refused(lambda: client.infer(model, [given, given])),
    "output": refused(lambda: infer(triton.InferRequestedOutput("absent"))),
    "model": refused(lambda: client.infer("absent", [given])),
    "version": refused(lambda: infer(model_version="7")),
    "version that is none": refused(lambda: infer(model_version="newest")),
    "classes": refused(lambda: infer(triton.InferRequestedOutput("output", class_count=-1))),
    "timeout": refused(lambda: infer(timeout=-1)),
    "shared memory": refused(lambda: client.infer(model, [shared])),
    "shared memory status": refused(client.get_system_shared_memory_status),
    "metadata": refused(lambda: client.get_model_metadata("absent")),
    "config": refused(lambda: client.get_model_config(model, "7")),
    "statistics": refused(lambda: client.get_inference_statistics("absent")),
    "trace settings": refused(client.get_trace_settings),
    "unload": refused(lambda: client.unload_model(model)),
}
results["statistics"] = client.get_inference_statistics(model, as_json=True)
json.dump(results, sys.stdout)
