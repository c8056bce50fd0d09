class TritonPythonModel:
    def auto_complete_config(config):
        return config

    def execute(self, requests): ...
