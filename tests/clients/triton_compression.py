"""Call a server with tritonclient's two HTTP clients, which ask for compressed answers, and print JSON.

Usage: triton_compression.py HOST:PORT MODEL OUTPUT
"""

import asyncio
import gzip
import json
import sys
import zlib

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

url, model, output = sys.argv[1:]
rows = np.resize(np.linspace(0, 16, 3 * 64, dtype=np.float32), (300, 1, 8, 8))
given = triton.InferInput("x", rows.shape, "FP32")
given.set_data_from_numpy(rows)
client = triton.InferenceServerClient(url)
# [encoding, bytes received, bytes after decompression] of each answer that a client has decompressed
decompressed = []


def counted(name, decompress):
    def call(data):
        result = decompress(data)
        decompressed.append([name, len(data), len(result)])
        return result

    return call


gzip.decompress = counted("gzip", gzip.decompress)
zlib.decompress = counted("deflate", zlib.decompress)


async def main():
    answers = {}
    async with triton_aio.InferenceServerClient(url) as aio:
        for algorithm in ("gzip", "deflate"):
            for binary in (True, False):
                requested = [triton.InferRequestedOutput(output, binary_data=binary)]
                options = {"outputs": requested, "response_compression_algorithm": algorithm}
                form = f"{algorithm} {'binary' if binary else 'json'}"
                answers[f"{form} sync"] = client.infer(model, [given], **options)
                answers[f"{form} asyncio"] = await aio.infer(model, [given], **options)
        # this client accepts gzip in these requests too, and does not decompress their answers
        index = await aio.get_model_repository_index()
        await aio.get_inference_statistics(), await aio.get_model_config(model)
        await aio.get_model_metadata(model), await aio.get_server_metadata()
    return {
        "rows": rows.tolist(),
        "outputs": {form: answer.as_numpy(output).tolist() for form, answer in answers.items()},
        "decompressed": decompressed,
        "index": index,
    }


json.dump(asyncio.run(main()), sys.stdout)
