try:
    import fasttext
except ImportError:
    raise


class TritonPythonModel:
    def execute(self, requests):
        return []
