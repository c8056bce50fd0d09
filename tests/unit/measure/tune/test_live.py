"""The server of others is left as it was found, however the run ends."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import serve_repository as made

from triton_repo_builder import repository
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.tune import factors
from triton_repo_builder.measure.tune import live as live_module
from triton_repo_builder.measure.tune.live import Live, TrialFailed
from triton_repo_builder.repository.config import ModelConfig
from triton_repo_builder.run.client import Urls

FOUND = {"backend": "python", "instance_group": [{"count": 1}]}
BASE = {"instances": 1}


class Server:
    """One model, ``m``; ``ends`` are what its loads raise or answer, in turn, after they had their effect."""

    def __init__(self, *ends: object) -> None:
        self.config: Mapping[str, Any] = FOUND
        self._ends = [*ends]

    def answers_live(self) -> bool:
        return True

    def ready(self, name: str) -> bool:
        return True

    def wait_until_settled(self, name: str, patience: float) -> None:
        pass

    def load(self, name: str, parameters: Mapping[str, str]) -> str:
        self.config = json.loads(parameters["config"])
        end = self._ends.pop(0) if self._ends else ""
        if isinstance(end, BaseException):
            raise end
        return str(end)


def live(server: Server) -> Live:
    @contextmanager
    def opened() -> Iterator[tuple[Urls, int | None]]:
        yield Urls(http="http://127.0.0.1:1", grpc="127.0.0.1:2", metrics=""), None

    made = Live(opened, None, own=False)
    made.subjects["m"] = factors.subject("m", {"m": ModelConfig(FOUND)})
    return made


def run(server: Server) -> None:
    session = live(server)
    with session:
        session.http = server  # type: ignore[assignment]
        session.apply({"instances": 2}, BASE)


def test_after_a_run_that_ends_well() -> None:
    server = Server()
    run(server)
    assert server.config == FOUND


def test_after_ctrl_c_while_a_model_is_loaded() -> None:
    """The request had arrived: whether it was carried out is not known."""
    server = Server(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(server)
    assert server.config == FOUND


def test_after_a_load_that_was_refused() -> None:
    server = Server("no memory")
    with pytest.raises(TrialFailed):
        run(server)
    assert server.config == FOUND


def test_after_ctrl_c_while_it_is_put_back() -> None:
    server = Server("", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(server)
    assert server.config == FOUND


def test_what_cannot_be_put_back_is_said() -> None:
    with pytest.raises(TrbError) as caught:
        run(Server("", "its file is gone"))
    assert caught.value.code is Code.MODEL_FAILED
    assert "its file is gone" in caught.value.message


def test_fewer_instances_are_loaded_anew_and_the_model_is_put_back_as_it_was() -> None:
    server = Server()
    session = live(server)
    with session:
        session.http = server  # type: ignore[assignment]
        session.apply({"instances": 4}, BASE)
        assert server.config == {**FOUND, "instance_group": [{"count": 4}]}
        session.apply({"instances": 2}, BASE)
        assert server.config["parameters"].keys() == {live_module.FRESH}
        session.apply({"instances": 3}, BASE)
        assert "parameters" not in server.config
    assert server.config == FOUND


def test_a_search_loads_what_its_endpoint_needs(tmp_path: Path) -> None:
    for name in ("tokenizer", "alone"):
        made.python(tmp_path, name)
    for name in ("first", "second"):
        made.ensemble(tmp_path, name, "tokenizer")
    repo = repository.read(tmp_path)
    assert live_module.needed(repo, "first", ()) == ("first",)
    assert live_module.needed(repo, "alone", ("second",)) == ("alone", "second")
    assert live_module.affected(repo, ("first",)) == ("first", "second"), "they share the tokenizer"
    assert live_module.affected(repo, ("alone",)) == ("alone",)
    for endpoint, variants in (("", ()), ("other", ()), ("first", ("other",))):
        with pytest.raises(TrbError) as caught:
            live_module.needed(repo, endpoint, variants)
        assert caught.value.code is Code.USAGE
        assert "alone, first, second" in caught.value.remedy
