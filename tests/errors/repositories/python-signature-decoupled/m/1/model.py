class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            responses.append(request)
        return responses
