class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        stated = config.as_dict()
        stated["input"] = []
        config.add_input({"name": "X", "data_type": "TYPE_FP32", "dims": [5]})
        return config

    def execute(self, requests):
        return []
