"""Layers between pooling and the embedding, in ONNX's text form: Dense, LayerNorm, Normalize.

Every layer works on each row by itself, so an answer does not depend on the other rows of a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

# torch.nn's activations with their default arguments, which is how sentence-transformers makes them.
ACTIVATIONS = {
    "none": "OUT = Identity (IN)",
    "tanh": "OUT = Tanh (IN)",
    "relu": "OUT = Relu (IN)",
    "sigmoid": "OUT = Sigmoid (IN)",
    "gelu": """
    root_two = Constant <value = float {1.41421356}> ()
    scaled = Div (IN, root_two)
    erf = Erf (scaled)
    one = Constant <value = float {1}> ()
    doubled = Add (erf, one)
    half = Constant <value = float {0.5}> ()
    share = Mul (doubled, half)
    OUT = Mul (IN, share)""",
    "silu": """
    gate = Sigmoid (IN)
    OUT = Mul (IN, gate)""",
    "mish": """
    soft = Softplus (IN)
    gate = Tanh (soft)
    OUT = Mul (IN, gate)""",
    "leaky_relu": "OUT = LeakyRelu <alpha = 0.01> (IN)",
    "elu": "OUT = Elu <alpha = 1.0> (IN)",
    "selu": "OUT = Selu (IN)",
    "softplus": "OUT = Softplus (IN)",
    "softsign": "OUT = Softsign (IN)",
}

_DENSE = """
    product = MatMul (IN, layer_weight)
    biased = Add (product, layer_bias)
"""

_LAYER_NORM = "OUT = LayerNormalization <axis = -1, epsilon = 1e-5> (IN, layer_weight, layer_bias)"

# The same before opset 17, which brought the operator.
_LAYER_NORM_BY_PARTS = """
    mean = ReduceMean <axes = [1], keepdims = 1> (IN)
    centred = Sub (IN, mean)
    squares = Mul (centred, centred)
    variance = ReduceMean <axes = [1], keepdims = 1> (squares)
    epsilon = Constant <value = float {1e-5}> ()
    variance_safe = Add (variance, epsilon)
    deviation = Sqrt (variance_safe)
    unit = Div (centred, deviation)
    scaled = Mul (unit, layer_weight)
    OUT = Add (scaled, layer_bias)
"""

# x / max(|x|, 1e-12), the definition of torch.nn.functional.normalize.
UNIT_LENGTH = """
    as_row_p = Constant <value = int64[3] {0, 1, -1}> ()
    as_column_p = Constant <value = int64[3] {0, -1, 1}> ()
    flat_p = Constant <value = int64[2] {0, -1}> ()
    p_row = Reshape (IN, as_row_p)
    p_column = Reshape (IN, as_column_p)
    square_3d = MatMul (p_row, p_column)
    square = Reshape (square_3d, flat_p)
    length = Sqrt (square)
    smallest = Constant <value = float {1e-12}> ()
    length_safe = Max (length, smallest)
    OUT = Div (IN, length_safe)
"""


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """activation(x @ weight + bias), weight [inputs, outputs]."""

    inputs: int
    outputs: int
    activation: str

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of the layer's weights."""
        return ("weight", f"float[{self.inputs}, {self.outputs}]"), ("bias", f"float[{self.outputs}]")

    def text(self, opset: int) -> str:
        """Operators from ``IN`` to ``OUT``."""
        return _DENSE + ACTIVATIONS[self.activation].replace("IN", "biased") + "\n"


@dataclass(frozen=True, kw_only=True)
class NormLayer:
    """torch.nn.LayerNorm over all values, with weight and bias."""

    outputs: int

    @property
    def parameters(self) -> tuple[tuple[str, str], ...]:
        """(name, type) of the layer's weights."""
        return ("weight", f"float[{self.outputs}]"), ("bias", f"float[{self.outputs}]")

    def text(self, opset: int) -> str:
        """Operators from ``IN`` to ``OUT``."""
        return f"{_LAYER_NORM}\n" if opset >= 17 else _LAYER_NORM_BY_PARTS


@dataclass(frozen=True, kw_only=True)
class UnitLayer:
    """Vectors divided by their lengths, before another layer."""

    outputs: int | None = None
    """None: as many values as before."""
    parameters: tuple[tuple[str, str], ...] = ()

    def text(self, opset: int) -> str:
        """Operators from ``IN`` to ``OUT``."""
        return UNIT_LENGTH


Layer = DenseLayer | NormLayer | UnitLayer
