"""FastAPI with onnxruntime, as in a first version of a service."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
session = onnxruntime.InferenceSession(os.environ["FILE"], options, providers=["CPUExecutionProvider"])
app = FastAPI()


class Question(BaseModel):
    """Rows of numbers."""

    x: list[list[float]]


class Answer(BaseModel):
    """A logit for each class and row."""

    logits: list[list[float]]


@app.post("/predict")
def predict(question: Question) -> Answer:
    (logits,) = session.run(["output"], {"x": np.array(question.x, np.float32)})
    return Answer(logits=logits.tolist())
