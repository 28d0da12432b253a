"""A model of the conformance suite, by its name, for Triton's Python backend."""

import os
import sys

import triton_python_backend_utils as triton

# Triton replaces PYTHONPATH
sys.path.append(os.environ["SUITE"])
from tests.conformance.models import MODELS


class TritonPythonModel:
    """Triton requires this name."""

    def initialize(self, args):
        (self.model,) = [model for model in MODELS if model.name == args["model_name"]]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        inputs = {
            name: triton.get_input_tensor_by_name(request, name).as_numpy() for name in self.model.inputs
        }
        outputs = self.model.run(inputs)
        wanted = [name for name in outputs if name in request.requested_output_names()]
        return triton.InferenceResponse([triton.Tensor(name, outputs[name]) for name in wanted])
