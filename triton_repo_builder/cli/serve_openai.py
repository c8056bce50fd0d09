"""The gateway that ``trb serve --openai`` runs beside its server."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from triton_repo_builder.base.declaration import Topic, changed, nested, option
from triton_repo_builder.base.option_values import Switch
from triton_repo_builder.cli import declared, interrupts
from triton_repo_builder.run.gateway.options import GRACE, GatewayOptions
from triton_repo_builder.run.options import PORT, ServeOptions

if TYPE_CHECKING:
    from triton_repo_builder.run.codegen.gateway_calls import Gateway
    from triton_repo_builder.run.serve import KeptServer


OF_BOTH = ("--log-format", "--trace", "--trace-rate")
"""Options of the gateway that the server has, too."""


@dataclass(frozen=True, kw_only=True)
class OpenAIOptions:
    """Whether a gateway runs beside the server, and how."""

    on: bool = option(
        False,
        Switch(),
        Topic.GATEWAY,
        "Also answer OpenAI, Cohere, TEI and Hugging Face clients: runs trb gateway.",
        flag="--openai",
    )
    port: int = option(9000, PORT, Topic.GATEWAY, "0: any free port.", flag="--openai-port")
    gateway: GatewayOptions = nested(GatewayOptions, Topic.GATEWAY)
    host: str = "127.0.0.1"

    def checked(self) -> OpenAIOptions:
        """The options. Raises ``UsageError`` for options of a gateway that does not run."""
        flags = [flag for flag, _ in changed(self) if flag not in OF_BOTH]
        if flags and not self.on:
            raise click.UsageError(f"{flags[0]} is for the gateway: add --openai.")
        return self

    def applied(self, options: ServeOptions) -> ServeOptions:
        """The server's options with those that it has in common with the gateway.

        Behind a gateway, the gateway decides which requests are traced: Triton follows its ``traceparent``.
        """
        shared = self.gateway
        return replace(
            options,
            log_json=shared.log_format == "json",
            trace=shared.trace or "",
            trace_rate=0 if self.on else shared.trace_rate,
        )

    @property
    def grace(self) -> float:
        """Seconds that the end of the gateway may take."""
        return self.gateway.drain + self.gateway.timeout + GRACE if self.on else 0.0

    def prepared(self, host: str) -> OpenAIOptions:
        """The options with host and port, checked before models are loaded. Raises ``TrbError``."""
        if not self.on:
            return self
        from triton_repo_builder.run.serve import gateway_process

        port = gateway_process.check(host, self.port)
        if self.gateway.map is not None:
            from triton_repo_builder.run.gateway.server import read_map

            read_map(self.gateway.map)
        if self.gateway.keys is not None:
            from triton_repo_builder.run.gateway import api_keys

            api_keys.read(self.gateway.keys)
        return replace(self, host=host, port=port)

    @contextmanager
    def running(self, kept: KeptServer, repo: Path, tell: Callable[[str], None]) -> Iterator[Gateway | None]:
        """The gateway during the ``with`` block, which ends before the server does; None without one."""
        if not self.on:
            yield None
            return
        from triton_repo_builder.run.codegen.gateway_calls import Gateway
        from triton_repo_builder.run.serve.gateway_process import GatewayProcess

        arguments = [
            f"--url={kept.server.urls.grpc}",
            f"--repo={repo.resolve()}",
            *declared.arguments(self.gateway),
        ]
        process = GatewayProcess(arguments, self.host, self.port, lambda: kept.server.log, tell)
        try:
            yield Gateway(url=process.url, keyed=self.gateway.keys is not None)
        finally:
            # Ctrl-C skips the drain, as it does with trb gateway alone.
            drain = self.gateway.drain if interrupts.received(signal.SIGTERM) else 0.0
            process.stop(self.gateway.timeout + GRACE, drain)
