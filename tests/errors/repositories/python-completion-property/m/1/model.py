class TritonPythonModel:
    @staticmethod
    def auto_complete_config(c):
        c.add_output({"name": "Z", "data_type": "TYPE_INT32", "dims": [4], "optional": True})
        return c

    def execute(self, requests):
        return []
