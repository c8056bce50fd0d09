SCALE = 1 / 0


class TritonPythonModel:
    def execute(self, requests):
        return []
