"""The routes of all APIs: one module for each owner of a schema."""

from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.routes import (
    cohere,
    huggingface,
    openai,
    openai_audio,
    openai_moderations,
    operate,
    page,
    shadow,
    tei,
)

APIS: tuple[Route, ...] = (
    *openai.ROUTES,
    *openai_moderations.ROUTES,
    *openai_audio.ROUTES,
    *cohere.ROUTES,
    cohere.either(tei.rerank),
    *tei.ROUTES,
    *huggingface.ROUTES,
    *shadow.ROUTES,
    *operate.ROUTES,
)
ALL = page.Documentation(APIS).routes
