"""Values of ``deploy.toml`` with bounds of their own: sizes in bytes, and the steps of a canary."""

from __future__ import annotations

from dataclasses import dataclass

from triton_repo_builder.base.option_values import Bytes, InvalidValue, Numbers

UNITS = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}
LEAST_MEMORY, MOST_MEMORY = 64 << 20, 32 << 40
"""Bytes of a container: Python alone needs the one, no machine has more than the other."""
LEAST_BODY, MOST_BODY = 1 << 10, 2 << 30
"""Bytes of a request. To Traefik 0 means without a limit; no message of gRPC has more than 2 GiB
(https://protobuf.dev/programming-guides/proto-limits/)."""


@dataclass(frozen=True)
class Size(Bytes):
    """Bytes in a range."""

    least: int = 0
    most: int = MOST_MEMORY

    def check(self, value: int) -> None:
        """Refuse a size out of range."""
        if not self.least <= value <= self.most:
            raise InvalidValue(
                f"must be from {binary(self.least)} to {binary(self.most)}, not {binary(value)}",
                "leave it out for the default",
            )


@dataclass(frozen=True)
class Steps(Numbers):
    """Percent of the traffic."""

    def parse(self, text: str) -> tuple[float, ...]:
        """The steps in their order."""
        try:
            return super().parse(text)
        except InvalidValue:
            said = f"[{text:.60}] is not a list of percentages" if text else "is empty"
            raise InvalidValue(said, "write for example [10, 50, 100]") from None


def binary(size: int) -> str:
    """Bytes in their largest unit, such as ``1.5GiB``."""
    unit, bytes_ = next(((unit, each) for unit, each in UNITS.items() if size >= each), ("KiB", 1 << 10))
    return f"{size / bytes_:g}{unit}"
