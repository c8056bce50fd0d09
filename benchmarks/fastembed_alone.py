"""fastembed's own cost of a text, as JSON: MODEL_FOLDER TEXTS BATCH SECONDS. Run by peers.py in .venv-peers.

fastembed is a library: it has no server, so this is what a server of it could reach at best, one process on
each core. ``--check`` prints the embeddings of a few texts instead.
"""

import argparse
import json
import time
from pathlib import Path


def main() -> None:
    """Embed the texts of a file again and again."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, metavar="MODEL_FOLDER", help="an exported encoder")
    parser.add_argument("texts", type=Path, metavar="TEXTS", help="a JSON list of texts")
    parser.add_argument("batch", type=int, metavar="BATCH", help="texts at a time")
    parser.add_argument("seconds", type=float, metavar="SECONDS", help="how long")
    parser.add_argument("--check", action="store_true", help="print the embeddings of the texts")
    arguments = parser.parse_args()
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    TextEmbedding.add_custom_model(
        model="local/encoder",
        pooling=PoolingType.MEAN,
        normalization=True,
        sources=ModelSource(hf="local/encoder"),
        dim=384,
        model_file="model.onnx",
    )
    model = TextEmbedding(
        "local/encoder",
        specific_model_path=str(arguments.model),
        threads=1,
        providers=["CPUExecutionProvider"],
    )
    texts = json.loads(arguments.texts.read_text())
    if arguments.check:
        print(json.dumps([vector.tolist() for vector in model.embed(texts)]))
        return
    parts = [texts[start : start + arguments.batch] for start in range(0, len(texts), arguments.batch)]
    list(model.embed(parts[0], batch_size=arguments.batch))
    done, wall, used = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - wall < arguments.seconds:
        for part in parts:
            done += len(list(model.embed(part, batch_size=arguments.batch)))
            if time.perf_counter() - wall >= arguments.seconds:
                break
    seconds = time.perf_counter() - wall
    print(json.dumps({"cpu_ms": (time.process_time() - used) * 1000 / done, "throughput": done / seconds}))


if __name__ == "__main__":
    main()
