"""Whether AutoTokenizer of the installed transformers follows tokenizer.json.

Classes of transformers 5 make a tokenizer of their own from the vocabulary, which is not always the one in
tokenizer.json (ALBERT, T5, DeBERTa-v2: white space, characters). The server follows tokenizer.json, as
transformers 4 does, and the build notes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from triton_repo_builder.base import containment
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.model.read import transformers_library
from triton_repo_builder.model.read.tokenizer import FILE, TokenizerSpec


def note(spec: TokenizerSpec, texts: Iterable[tuple[str, str]]) -> str:
    """A note on the texts that it tokenizes differently; empty if there are none. Raises ``TrbError``."""
    folder = spec.file.parent
    if spec.file.name != FILE or not containment.within(folder, "tokenizer_config.json") or spec.own_python:
        return ""
    served = spec.library
    try:
        other = transformers_library.from_pretrained("AutoTokenizer", folder, use_fast=True)
        # sentence-transformers does the lower-casing, not transformers' tokenizer.
        named = [(name, text.lower() if spec.lowered else text) for name, text in texts]
        with transformers_library.panics():
            differ = [name for name, text in named if other(text)["input_ids"] != served.encode(text).ids]
    except TrbError:
        raise
    except Exception as error:
        raise TrbError(
            Code.TOKENIZER_INVALID,
            f"transformers cannot load it: {transformers_library.reason(error, folder)}",
            where=str(folder),
            remedy="save it again with save_pretrained; --no-golden builds without this proof",
        ) from None
    if not differ:
        return ""
    followed = "tokenizer.json"
    if spec.content is not None:
        followed += " with tokenizer_config.json as transformers 4 did"
    return (
        f"{type(other).__name__} of transformers {transformers_library.version()} does not follow "
        f"{followed} (other tokens for the golden texts {', '.join(differ)}); the server does"
    )
