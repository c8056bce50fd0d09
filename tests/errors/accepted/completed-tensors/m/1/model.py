class TritonPythonModel:
    @staticmethod
    def auto_complete_config(c):
        d=c.as_dict()
        if not d["input"] or not d["input"][0]["dims"]: c.add_input({"name":"X","data_type":"TYPE_FP32","dims":[4]})
        if not d["output"]: c.add_output({"name":"Y","data_type":"TYPE_FP32","dims":[4]})
        c.set_max_batch_size(8)
        return c
    def execute(self, requests):
        import triton_python_backend_utils as u, numpy as n
        return [u.InferenceResponse([u.Tensor("Y", n.zeros((len(u.get_input_tensor_by_name(r,"X").as_numpy()),4),"float32"))]) for r in requests]
