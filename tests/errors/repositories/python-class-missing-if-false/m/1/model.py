if False:
    class TritonPythonModel:
        pass
