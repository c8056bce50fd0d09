"""One endpoint, from a configuration, a manifest and a server."""

from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.repository.interface import Endpoint, Tensor

CONFIG = ModelConfig(
    {
        "max_batch_size": 8,
        "input": [
            {"name": "TEXT", "data_type": "TYPE_STRING", "dims": ["1"]},
            {"name": "PAIR", "data_type": "TYPE_STRING", "dims": [1], "optional": True},
        ],
        "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": [2]}],
    }
)
ENDPOINT = Endpoint(
    name="m",
    inputs=(
        Tensor(name="TEXT", datatype="BYTES", shape=(-1, 1)),
        Tensor(name="PAIR", datatype="BYTES", shape=(-1, 1), optional=True),
    ),
    outputs=(Tensor(name="scores", datatype="FP32", shape=(-1, 2)),),
    max_batch_size=8,
)


def test_all_three_sources_give_the_same() -> None:
    assert Endpoint.of_config("m", CONFIG) == ENDPOINT
    assert Endpoint.of_manifest("m", ENDPOINT.to_manifest()) == ENDPOINT
    metadata = {
        "name": "m",
        "inputs": [
            {"name": "TEXT", "datatype": "BYTES", "shape": ["-1", "1"]},
            {"name": "PAIR", "datatype": "BYTES", "shape": [-1, 1]},
        ],
        "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 2]}],
    }
    served = Endpoint.of_server(metadata, CONFIG)
    assert served == ENDPOINT
    assert served.optional == ENDPOINT.optional == {"PAIR"}
    assert [tensor.name for tensor in served.needed] == ["TEXT"]


def test_without_batching_there_is_no_batch_axis() -> None:
    config = ModelConfig({"output": [{"name": "x", "data_type": "TYPE_BF16", "dims": [3]}]})
    assert Endpoint.of_config("m", config).outputs == (Tensor(name="x", datatype="BF16", shape=(3,)),)
