"""Exports an encoder of BERT's size (random weights, fp32): large 335 million in a file of 1.3 GB, base 110.

    .venv-export/bin/python benchmarks/encoder.py FOLDER MINILM_FOLDER [--size base]

The tokenizer and the pooling are all-MiniLM-L6-v2's, so that it builds like any sentence embedding model.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from transformers import BertConfig

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def token_vectors(config: BertConfig) -> torch.nn.Module:
    """An encoder with plain tensors in and out, as a graph has them."""
    import torch
    from transformers import BertModel

    class TokenVectors(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = BertModel(config, add_pooling_layer=False).eval()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor) -> torch.Tensor:
            """Last hidden states, ``[batch, sequence, hidden_size]``."""
            encoded = self.encoder(input_ids=ids, attention_mask=mask, token_type_ids=types)
            return encoded.last_hidden_state

    return TokenVectors()


SIZES = {
    "large": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
    "base": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
}


def main(target: Path, source: Path, size: str) -> None:
    """Write model.onnx, config.json and what describes tokenizer and pooling."""
    import torch
    from transformers import BertConfig

    torch.manual_seed(0)
    config = BertConfig(**SIZES[size])
    target.mkdir(parents=True)
    example = torch.ones(2, 7, dtype=torch.long)
    names = [*INPUTS, "last_hidden_state"]
    torch.onnx.export(
        token_vectors(config),
        (example, example, example),
        str(target / "model.onnx"),
        input_names=names[:3],
        output_names=names[3:],
        dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names},
        opset_version=17,
        dynamo=False,
    )
    config.save_pretrained(target)
    shutil.copytree(source / "1_Pooling", target / "1_Pooling")
    for name in ("modules.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, target / name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", type=Path, metavar="FOLDER", help="a folder that is not there yet")
    parser.add_argument("source", type=Path, metavar="MINILM_FOLDER", help="all-MiniLM-L6-v2's files")
    parser.add_argument("--size", choices=sorted(SIZES), default="large")
    given = parser.parse_args()
    main(given.target, given.source, given.size)
