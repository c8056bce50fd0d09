"""The gateway's own route: how far the shadow agrees."""

from __future__ import annotations

from triton_repo_builder.run.gateway.call import Call, Reply, Route, reply


async def shadow(call: Call) -> Reply:
    """``GET /shadow``."""
    return reply(call.gateway.shadow.report())


ROUTES = (
    Route(path="/shadow", handler=shadow, api="gateway", method="GET", summary="Agreement of the shadow"),
)
