"""The engine that changes what a server serves, against a server and a folder that are only lists."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.produce.write.install import Piece
from triton_repo_builder.run.client import RequestFailed
from triton_repo_builder.run.serve.loading.load_unload import Hung
from triton_repo_builder.ship.deploy import engine as engines
from triton_repo_builder.ship.deploy.engine import Engine, Terms
from triton_repo_builder.ship.deploy.stage import Stage


class World:
    """A server with the versions that the folder's files name, and all that was done to either."""

    def __init__(self) -> None:
        self.root = Path("repo")
        self.urls = SimpleNamespace(http="http://127.0.0.1:9")
        self.loader = self.http = self
        self.files: Stage | None = None
        self.versions: dict[str, tuple[int, ...]] = {}
        self.failed: set[tuple[str, int]] = set()
        self.log: list[str] = []
        self.broken: dict[tuple[str, int], BaseException | str] = {}
        """Versions that do not load."""
        self.is_alive = True

    # the folder
    def put(self, before: Stage, after: Stage) -> None:
        assert self.files is before
        self.files = after
        self.log.append(f"put {after.about}")

    def arrived(self, before: Stage, after: Stage) -> bool:
        return self.files is after

    def stand_in(self, stage: Stage, model: str, number: int, failed: int) -> Stage | None:
        return one(f"{model}: {number} as {failed}", {**numbers(stage), model: (number, -failed)})

    # the server
    def alive(self) -> bool:
        return self.is_alive

    def load(self, model: str, timeout: float) -> str:
        assert self.files is not None
        self.log.append(f"load {model}")
        for number in numbers(self.files)[model]:
            problem = self.broken.get((model, number), "")
            if isinstance(problem, BaseException):
                raise problem
            if problem:
                self.failed.add((model, number))
                return problem
        loaded = tuple(abs(number) for number in numbers(self.files)[model])
        self.failed -= {(model, number) for number in loaded}
        self.versions[model] = loaded
        return ""

    def unload(self, model: str) -> str:
        self.log.append(f"unload {model}")
        del self.versions[model]
        return ""

    def loaded(self) -> dict[str, tuple[int, ...]]:
        return dict(self.versions)

    def wait_until_settled(self, model: str, patience: float) -> None:
        """At once."""

    def index_or_empty(self) -> tuple[Any, ...]:
        return tuple(SimpleNamespace(name=n, version=str(v), failed=True) for n, v in self.failed)


def numbers(stage: Stage) -> dict[str, tuple[int, ...]]:
    """The versions of each model that are loaded with the files of a stage."""
    return {path.split("/")[0]: tuple(map(int, p.content.split())) for path, p in stage.state.items()}


def one(about: str, models: dict[str, tuple[int, ...]], *loads: str, **fields: Any) -> Stage:
    return Stage(
        about=about,
        state={f"{m}/config.pbtxt": Piece.of(" ".join(map(str, n)).encode()) for m, n in models.items()},
        entry=None,
        loads=loads,
        expected={model: models[model] for model in loads},
        **fields,
    )


OLD = one("as before", {"step": (1,), "whole": (1,)})
BOTH = one("both", {"step": (1, 2), "whole": (1,)}, "step")
SWITCH = one("switch", {"step": (1, 2), "whole": (2,)}, "whole", proven=True)
NEW = one("new", {"step": (2,), "whole": (2,)}, "step")
TERMS = Terms(
    name="whole",
    code=Code.PROMOTE_FAILED,
    before="version 1",
    proof="smoke",
)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    world.files = OLD
    world.versions = {"step": (1,), "whole": (1,)}
    monkeypatch.setattr(Engine, "prove", lambda self, state: world.log.append("proven"))
    monkeypatch.setattr(engines.clear_failed, "failures", lambda url, models: None)
    return world


def engine(world: Any, *stages: Stage) -> Engine:
    return Engine(world, world, stages or (OLD, BOTH, SWITCH, NEW), TERMS, lambda text: None)


def failing(world: World, walked: Engine) -> TrbError:
    with pytest.raises(TrbError) as caught:
        walked.walk()
    assert caught.value.code is Code.PROMOTE_FAILED
    return caught.value


def test_each_stage_is_put_loaded_and_proven(world: World) -> None:
    walked = engine(world)
    walked.walk(lambda: world.log.append("finished"))
    assert world.log == [
        "put both", "load step", "put switch", "load whole", "proven", "put new", "load step", "finished",
    ]  # fmt: skip
    assert world.versions == {"step": (2,), "whole": (2,)}
    assert (walked.loads, walked.there, walked.is_between) == (3, NEW, False)


def test_a_version_that_does_not_load_is_taken_back_and_forgotten(world: World) -> None:
    world.broken["step", 2] = "boom"
    walked = engine(world)
    assert failing(world, walked).message == "step could not be loaded: boom"
    assert world.log == [
        "put both", "load step", "put step: 1 as 2", "load step", "put both", "put as before", "load step",
    ]  # fmt: skip
    assert (world.versions, world.failed) == ({"step": (1,), "whole": (1,)}, set())


def test_the_ensemble_goes_back_before_its_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Engine, state: str) -> None:
        raise self.terms.failed(f"wrong; {state}", "")

    monkeypatch.setattr(Engine, "prove", wrong)
    walked = engine(world)
    assert failing(world, walked).message == "wrong; version 1 serves again"
    assert world.log[4:] == ["put both", "load whole", "put as before", "load step"]
    assert (world.versions, walked.there) == ({"step": (1,), "whole": (1,)}, OLD)


def test_what_finishes_it_may_fail_and_takes_all_of_it_back(world: World) -> None:
    def full() -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        engine(world).walk(full)
    assert (world.versions, world.files) == ({"step": (1,), "whole": (1,)}, OLD)


def test_a_load_that_hangs_leaves_the_server_alone(world: World) -> None:
    world.broken["step", 2] = Hung("step: its process died")
    error = failing(world, engine(world))
    assert error.message == "step: its process died; version 1 goes on answering"
    assert (world.log, world.files) == (["put both", "load step", "put as before"], OLD)


def test_a_server_that_ended_gets_no_request(world: World) -> None:
    def end(url: object, timeout: float) -> str:
        world.is_alive = False
        raise ConnectionError("refused")

    world.load = end  # type: ignore[method-assign]
    error = failing(world, engine(world))
    assert error.message == "the server ended during 'both'; the repository is as before, with version 1"
    assert world.files is OLD


def test_a_server_that_does_not_answer_is_named_with_the_stage(world: World) -> None:
    world.broken["whole", 2] = RequestFailed("broken", "", "no answer")
    error = failing(world, engine(world))
    assert error.message.startswith("the server does not answer (")
    assert error.message.endswith(") during 'switch'; the repository is as before, with version 1")
    assert world.versions == {"step": (1,), "whole": (1,)}


def test_what_cannot_be_loaded_again_is_said_and_nothing_stops_the_rest(world: World) -> None:
    world.broken |= {("whole", 2): "boom", ("step", 1): OSError("gone")}
    walked = engine(world, OLD, one("more", {"step": (1,), "whole": (1,), "other": (1,)}, "other"), SWITCH)
    error = failing(world, walked)
    assert "whole could not be loaded: boom" in error.message
    assert walked.there is OLD
    assert "other" not in world.versions


def test_ctrl_c_goes_back_and_stays_ctrl_c(world: World) -> None:
    world.broken["whole", 2] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        engine(world).walk()
    assert (world.versions, world.files) == ({"step": (1,), "whole": (1,)}, OLD)


def test_an_endpoint_that_was_unloaded_is_loaded_again(world: World) -> None:
    gone = one("gone", {}, unloads=("whole", "step"))
    walked = engine(world, OLD, gone)
    walked.walk()
    assert world.versions == {}
    assert walked.roll_back() == ""
    assert world.versions == {"step": (1,), "whole": (1,)}


def test_a_server_of_another_folder_is_noticed(world: World) -> None:
    walked = engine(world, OLD, one("more", {"step": (1,), "whole": (1,)}, "whole"))
    world.load = lambda model, timeout: world.versions.pop(model, None) and ""  # type: ignore
    error = failing(world, walked)
    assert "the server has no version 1 of whole after loading it" in error.message
    assert "start it from this repository" in error.remedy
