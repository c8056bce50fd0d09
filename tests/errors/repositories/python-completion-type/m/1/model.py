class TritonPythonModel:
    @staticmethod
    def auto_complete_config(c):
        c.add_output({"name": "Y", "data_type": "TYPE_INT32", "dims": [4]})
        return c

    def execute(self, requests):
        return []
