"""The routes of all APIs: one module for each owner of a schema."""

from triton_repo_builder.run.gateway.call import Route
from triton_repo_builder.run.gateway.routes import openai, page

ALL: tuple[Route, ...] = page.Documentation((*openai.ROUTES,)).routes
