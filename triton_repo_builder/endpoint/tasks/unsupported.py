"""Text generation is recognised, and refused in one sentence: a decoder needs another kind of server."""

from __future__ import annotations

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.endpoint.tasks.support import saved_modules
from triton_repo_builder.model.read import empty_cache
from triton_repo_builder.model.read.source import Source

DECODERS = (
    "ForCausalLM",
    "LMHeadModel",
    "ForConditionalGeneration",
    "ForSeq2SeqLM",
    "ForSpeechSeq2Seq",
    "MTModel",
)


def refuse(source: Source, task: str | None) -> None:
    """``TrbError`` UNSUPPORTED_MODEL for a graph that generates text.

    An encoder of such a model, or a decoder exported to give token vectors, passes: the graph's inputs and
    outputs decide. The name of an architecture only explains logits [batch, tokens, …].
    """
    sign = next((spec.name for spec in source.signature.inputs if _past(spec.name)), "")
    if not sign and empty_cache.generates(source.signature):
        sign = next((s.name for s in source.signature.outputs if s.name.startswith(empty_cache.PRESENT)), "")
    named = next(
        (str(name) for name in source.config.get("architectures") or () if str(name).endswith(DECODERS)), ""
    )
    logits = source.signature.output("logits")
    scores_tokens = any(
        saved_modules.kind(module) == "LogitScore" for module in saved_modules.modules(source)
    )
    if scores_tokens or (task == "rerank" and named and logits is not None and len(logits.dims) == 3):
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            "this is a generative reranker"
            f" ({'modules.json has LogitScore' if scores_tokens else named}): a pair's score is the logit of "
            "its next token ('yes' against 'no'), which is not supported",
            where=str(source.path),
            remedy="serve it with vLLM, or with --task tensor, to clients that make the tokens and read "
            "the logits",
        )
    generates = logits is not None and len(logits.dims) == 3 and named
    if not sign and generates and task is None and not saved_modules.modules(source):
        sign = "logits"
    if sign:
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"this is a decoder, which generates text ({named or 'by its tensor'}, '{sign}'): trb builds no "
            "text generation",
            where=str(source.path),
            remedy="serve it with vLLM or TensorRT-LLM, or as plain tensors with --task tensor",
        )


def _past(name: str) -> bool:
    return name.startswith((empty_cache.PAST, "decoder_input_ids", "encoder_hidden_states")) or name in (
        "use_cache_branch",
    )
