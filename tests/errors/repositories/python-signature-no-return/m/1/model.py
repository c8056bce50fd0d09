import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            tensor = pb_utils.get_input_tensor_by_name(request, "X")
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", tensor.as_numpy())]))
