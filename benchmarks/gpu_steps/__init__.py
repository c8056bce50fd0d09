"""The steps of ``benchmarks/gpu.py``, in the order in which they run."""

from gpu_steps.step import Step

ENVIRONMENT = Step(
    name="environment",
    shows="what the pass needs is here: packages, tritonserver; for a GPU its driver, CUDA, cuDNN as well",
    where="environment:run",
)
STEPS = (
    ENVIRONMENT,
    Step(
        name="reference",
        shows="the CPU's answers, which the parity steps compare with",
        where="parity:reference",
    ),
    Step(
        name="parity_fp32",
        shows="ragged batching and every head give the CPU's answers, fp32 without TF32",
        where="parity:fp32",
    ),
    Step(
        name="parity_tf32",
        shows="the same as trb build writes it: products in TF32 on a GPU since Ampere",
        where="parity:tf32",
    ),
    Step(
        name="parity_fp16",
        shows="models of 16-bit floats beside the CPU's answers of 32 bits",
        where="parity:fp16",
    ),
    Step(
        name="kind_gpu",
        shows="trb smoke on instances of KIND_GPU, and the server's processes on the GPU",
        where="kind_gpu:run",
    ),
    Step(
        name="tensorrt",
        shows="--accelerator tensorrt: answers and golden cases of what it compiled, fixed shapes",
        where="tensorrt:run",
    ),
    Step(
        name="throughput",
        shows="throughput and p99 by clients: ours, the usual template, ONNX Runtime alone",
        where="throughput:run",
    ),
    Step(
        name="tokenizers",
        shows="1, 2, 4 and 8 tokenizer instances at that speed",
        where="tokenizers:run",
    ),
    Step(
        name="utilisation",
        shows="trb bench reports the GPU's utilisation",
        where="utilisation:run",
    ),
    Step(
        name="large_encoder",
        shows="an encoder of 1.3 GB: golden cases, throughput and p99",
        where="large_encoder:run",
    ),
    Step(
        name="arctic",
        shows="Arctic Inference's embedding protocol: 50 tokens, batches 1, 16 and 64, concurrency 1024",
        where="arctic:fp32",
    ),
    Step(
        name="arctic_fp16",
        shows="the same with --precision fp16",
        where="arctic:fp16",
    ),
)
BY_NAME = {step.name: step for step in STEPS}
