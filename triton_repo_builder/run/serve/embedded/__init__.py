"""Run tritonserver from a Python package."""
