"""Audio endpoints: AUDIO, a file's bytes, through a preprocessing model to the graph.

Files of one length join; nothing is padded, for Wav2Vec2 and its like answer otherwise beside padding.
"""

from __future__ import annotations

import json
import struct
from dataclasses import replace

from triton_repo_builder.base import resources
from triton_repo_builder.base.files import File
from triton_repo_builder.endpoint.golden import audio as golden
from triton_repo_builder.endpoint.golden import media
from triton_repo_builder.endpoint.golden.original import OriginalModel, Recording
from triton_repo_builder.endpoint.plan import defaults, preprocessed
from triton_repo_builder.endpoint.plan.defaults import ModelFacts
from triton_repo_builder.endpoint.plan.endpoint import (
    PLACEHOLDER,
    EndpointPlan,
    PlanRequest,
    Vendored,
    measured_obstacle,
    not_batched,
    postprocess_files,
    refuse_batching_options,
    unproven,
)
from triton_repo_builder.endpoint.plan.preprocessed import Media
from triton_repo_builder.endpoint.tasks.task import Kind
from triton_repo_builder.model.read import audio_processor
from triton_repo_builder.model.read.audio_processor import AudioSpec

SETTINGS_FILE = "preprocess.json"
SAMPLE = "audio"
MEDIA = Media(
    field=golden.INPUT,
    about="audio files to samples",
    answers="tokens of each moment to text",
    joins="files of any length are made ready together; the graph joins those of equal length",
    sample=SAMPLE,
)


def prepare(request: PlanRequest) -> AudioSpec:
    """The preprocessing in preprocessor_config.json. Raises ``TrbError``."""
    assert request.source.preprocessor is not None
    return audio_processor.read(request.source.preprocessor, request.source.config)


def record(request: PlanRequest, prepared: AudioSpec, original: OriginalModel) -> Recording:
    """Answers to the files of this package."""
    source, batching = request.source, request.source.signature.batch.possible
    sounds = golden.given_sounds(prepared)
    return media.record(original, source, request.task, sounds, request.name, batching=batching)


def plan(request: PlanRequest, prepared: AudioSpec, recording: Recording | None) -> EndpointPlan:
    """Raises ``TrbError`` NOT_BATCHABLE."""
    if recording is None:
        golden.given_sounds(prepared)  # proves the preprocessing, as recording does
    source, task, options, name = request.source, request.task, request.options, request.name
    measured = measured_obstacle(request, recording)
    if measured:
        refuse_batching_options(request, measured)
    obstacle = measured or source.signature.batch.reason
    facts = ModelFacts(kind=Kind.AUDIO, bytes=source.signature.bytes, obstacle=obstacle)
    settings = defaults.decide(options, request.machine, facts)
    media = replace(MEDIA, least=max(prepared.least, prepared.sampling_rate // 2))
    repository = preprocessed.models(media, request, settings, (-1,), batching=not obstacle)
    preprocess = repository.models[1].name
    root = f"{preprocess}/{options.version}"
    served = json.dumps(prepared.settings(), indent=1) + "\n"
    warm = []
    if options.warmup:
        data = next(iter(golden.sounds().values()))
        warm = [File(path=f"{preprocess}/warmup/{SAMPLE}", content=struct.pack("<I", len(data)) + data)]
    code = {"model.py": "audio.py", "audio_samples.py": "audio_samples.py"}
    return EndpointPlan(
        repository=repository,
        settings=settings,
        cases=recording.cases if recording else None,
        files=(
            *(File(path=f"{root}/{n}", content=resources.runtime(m).read_bytes()) for n, m in code.items()),
            File(path=f"{root}/{SETTINGS_FILE}", content=served.encode()),
            *warm,
            File(path=f"{name}/{options.version}/.gitkeep", content=PLACEHOLDER),
            *postprocess_files(task, name, options.version),
        ),
        vendored=(Vendored(library="sndfile", path=f"{root}/vendor"),),
        facts=(("preprocessor", audio_processor.KIND), ("sampling_rate", prepared.sampling_rate)),
        notes=(
            *not_batched(obstacle),
            *unproven(recording, settings),
            *(recording.notes if recording else ()),
        ),
    )
