"""The seeds' baseline: FastAPI in front of ONNX Runtime. Run by fastapi_baseline.py: PORT WORKERS.

TRB_MODEL is the exported folder, TRB_THREADS ONNX Runtime's threads (0: its default, all cores).
"""

import argparse
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import FastAPI


def made() -> "FastAPI":
    """The application; uvicorn calls this in each worker."""
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

    class Embeddings(BaseModel):
        model: str
        input: str | list[str]

    def embed(texts: list[str]) -> list[list[float]]:
        encoded = tokenizer(texts, return_tensors="np", truncation=True, padding=len(texts) > 1)
        answer = session.run([output], {name: encoded[name] for name in names})[0]
        if answer.ndim == 3:
            mask = encoded["attention_mask"][:, :, None].astype(np.float32)
            answer = (answer * mask).sum(axis=1) / mask.sum(axis=1)
            answer /= np.linalg.norm(answer, axis=1, keepdims=True)
        vectors: list[list[float]] = answer.tolist()
        return vectors

    @app.post("/predict")
    def predict(request: Request) -> dict[str, list[float]]:
        return {"embedding": embed([request.text])[0]}

    @app.post("/v1/embeddings")
    def embeddings(request: Embeddings) -> dict[str, object]:
        texts = [request.input] if isinstance(request.input, str) else request.input
        vectors = [row for start in range(0, len(texts), 32) for row in embed(texts[start : start + 32])]
        data = [
            {"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(vectors)
        ]
        return {"object": "list", "data": data, "model": request.model}

    @app.get("/ready")
    def ready() -> bool:
        return True

    return app


def main(port: int, workers: int) -> None:
    """As ``uvicorn --workers`` does, but for the protocol of the socket.

    uvicorn leaves it out; asyncio then does not switch Nagle's algorithm off, and every answer on a
    kept-alive connection waits 40 ms for the client's delayed acknowledgement (measured: 48 ms, not 4).
    """
    import uvicorn
    from uvicorn.supervisors import Multiprocess

    config = uvicorn.Config(
        "fastapi_app:made", factory=True, workers=workers, access_log=False, log_level="warning"
    )
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.1", port))
    Multiprocess(config, sockets=[door]).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("port", type=int, metavar="PORT", help="on 127.0.0.1")
    parser.add_argument("workers", type=int, metavar="WORKERS", help="processes")
    given = parser.parse_args()
    main(given.port, given.workers)
