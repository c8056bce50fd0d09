import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "X").as_numpy().astype(np.float)
            tensor = pb_utils.Tensor("Y", values.astype(np.float32))
            responses.append(pb_utils.InferenceResponse(output_tensors=[tensor]))
        return responses
