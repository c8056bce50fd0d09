"""Limits of Triton and its release, for every task."""

from __future__ import annotations

from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.base.releases import Release
from triton_repo_builder.model.graph import operators
from triton_repo_builder.model.read.options import usage
from triton_repo_builder.model.read.source import Source

CACHES_ENSEMBLES = "ensemble_response_cache"
EXTENSIONS = ("ai.onnx.contrib:", "com.microsoft.extensions:")
SHOWN = 5
"""Limit of operators in a message."""
OPSET_OPTIONS = "torch: opset_version; optimum: --opset; skl2onnx: target_opset"
"""How exporters are told."""


def check_release(source: Source, release: Release) -> None:
    """``TrbError`` TOO_NEW if the release's ONNX Runtime cannot load the model's opset.

    A newer IR version alone is fine: the served model is written with one the release supports.
    """
    opset = source.signature.opset
    if opset <= release.max_opset:
        return
    able = [name for name, other in releases.load().items() if opset <= other.max_opset]
    remedy = f"export with opset {release.max_opset} or older ({OPSET_OPTIONS})"
    remedy += f", or target --triton-release {able[0]}" if able else "; no known release can load it"
    raise TrbError(
        Code.TOO_NEW,
        f"opset {opset} is too new for Triton {release.name}, whose ONNX Runtime {release.onnxruntime} "
        f"takes up to {release.max_opset}",
        where=str(source.path),
        remedy=remedy,
    )


def check_operators(source: Source, release: Release) -> None:
    """``TrbError`` TOO_NEW if the release's ONNX Runtime has no CPU kernel for an operator of the model."""
    missing = operators.lacking(source.skeleton, release)
    if not missing:
        return
    able = [name for name, other in releases.load().items() if not operators.lacking(source.skeleton, other)]
    remedy = f"target --triton-release {able[0]}, or export it without" if able else "export it without"
    raise TrbError(
        Code.TOO_NEW,
        f"the ONNX Runtime {release.onnxruntime} of Triton {release.name} has no CPU kernel for "
        f"{', '.join(missing[:SHOWN])}{' and others' if len(missing) > SHOWN else ''}",
        where=str(source.path),
        remedy=remedy + ("" if able else "; no known release has one, but --device gpu may"),
    )


def check_libraries(source: Source, release: Release) -> None:
    """``TrbError`` UNSUPPORTED_MODEL if ONNX Runtime needs a library for some of the operators."""
    missing = operators.of_libraries(source.skeleton, release)
    if not missing:
        return
    extensions = any(name.startswith(EXTENSIONS) for name in missing)
    library = "the library of onnxruntime-extensions" if extensions else "a library of their own"
    file = "libortextensions.so" if extensions else "LIBRARY.so"
    raise TrbError(
        Code.UNSUPPORTED_MODEL,
        f"its operators {', '.join(missing[:SHOWN])}{' and others' if len(missing) > SHOWN else ''} need "
        f"{library}, which trb does not put into a repository",
        where=str(source.path),
        remedy="export the model without them (a tokenizer or image steps in the graph: trb adds them), or "
        "write its config.pbtxt by hand with "
        f'model_operations {{ op_library_filename: "/opt/{file}" }}, the path in the server',
    )


def check_response_cache(release: Release, *, ensemble: bool) -> None:
    """``TrbError`` USAGE if the release caches no answers of an ensemble, which the endpoint is."""
    if ensemble and CACHES_ENSEMBLES not in release.features:
        raise usage(
            "response_cache",
            f"Triton {release.name} does not cache the answers of an ensemble",
            f"target --triton-release {releases.first_with(CACHES_ENSEMBLES)} or later",
        )


def check_names(source: Source) -> None:
    """``TrbError`` if names do not tell inputs or outputs apart, or if there are none."""
    for role, specs in (("input", source.signature.inputs), ("output", source.signature.outputs)):
        names = [spec.name for spec in specs]
        twice = next((name for name in names if names.count(name) > 1), None)
        if names and twice is None:
            continue
        raise TrbError(
            Code.UNSUPPORTED_MODEL,
            f"two {role}s are called '{twice}'" if twice is not None else f"the model has no {role}s",
            where=str(source.path),
            remedy=f"export it again with at least one {role}, each under a name of its own",
        )


def check_sizes(source: Source) -> None:
    """``TrbError`` for a tensor that has an axis of size 0, which Triton does not take."""
    for spec in (*source.signature.inputs, *source.signature.outputs):
        if 0 in spec.dims:
            raise TrbError(
                Code.UNSUPPORTED_MODEL,
                f"'{spec.name}' has an axis of size 0, which Triton does not take",
                where=str(source.path),
                remedy="export it again without that input or output",
            )
