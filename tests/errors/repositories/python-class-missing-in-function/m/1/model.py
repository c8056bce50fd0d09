def f():
    class TritonPythonModel:
        pass
