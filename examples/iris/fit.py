"""A classifier of scikit-learn as ONNX: pip install scikit-learn skl2onnx; python fit.py writes iris.onnx."""

from pathlib import Path

from skl2onnx import to_onnx
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

rows, species = load_iris(return_X_y=True)
model = LogisticRegression(max_iter=500).fit(rows, species)
graph = to_onnx(model, rows[:1].astype("float32"), options={"zipmap": False}, target_opset=17)
Path("iris.onnx").write_bytes(graph.SerializeToString())
