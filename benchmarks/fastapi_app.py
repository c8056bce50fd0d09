"""The seeds' baseline: FastAPI in front of ONNX Runtime. Run by fastapi_baseline.py with uvicorn.

TRB_MODEL is the exported folder, TRB_THREADS ONNX Runtime's threads (0: its default, all cores).
"""

import os
from pathlib import Path

import numpy as np
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel
from transformers import AutoTokenizer

folder = Path(os.environ["TRB_MODEL"])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ.get("TRB_THREADS", "0"))
session = onnxruntime.InferenceSession(
    str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
)
names = [each.name for each in session.get_inputs()]
output = session.get_outputs()[-1].name
tokenizer = AutoTokenizer.from_pretrained(folder)
app = FastAPI()


class Request(BaseModel):
    text: str


@app.post("/predict")
def predict(request: Request) -> dict[str, list[float]]:
    encoded = tokenizer(request.text, return_tensors="np", truncation=True)
    answer = session.run([output], {name: encoded[name] for name in names})[0]
    if answer.ndim == 3:
        mask = encoded["attention_mask"][:, :, None].astype(np.float32)
        answer = (answer * mask).sum(axis=1) / mask.sum(axis=1)
        answer /= np.linalg.norm(answer, axis=1, keepdims=True)
    return {"embedding": answer[0].tolist()}


@app.get("/ready")
def ready() -> bool:
    return True
