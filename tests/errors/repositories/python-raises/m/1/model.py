raise RuntimeError("not ported yet")


class TritonPythonModel:
    def execute(self, requests):
        return []
