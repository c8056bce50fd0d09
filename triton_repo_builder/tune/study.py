"""The search itself: Optuna's sampler, a pruner for capacities, and a log with which a run goes on later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_repo_builder.errors import Code, TrbError
from triton_repo_builder.tune import factors
from triton_repo_builder.tune.factors import Factor, Setting, Value

LOG = "study.log"
STARTUP = 8
"""Trials by chance before the sampler learns from them."""
ABOUT, RESULT = "about", "result"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A setting to measure."""

    number: int
    setting: dict[str, Value]
    trial: Any


class Search:
    """Settings to try, and what they gave."""

    def __init__(
        self, space: tuple[Factor, ...], about: Mapping[str, Any], folder: Path | None, seed: int
    ) -> None:
        optuna = _library()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        self._optuna = optuna
        storage = _storage(folder) if folder else None
        self._study: Any = optuna.create_study(
            study_name="trb tune",
            storage=storage,
            load_if_exists=True,
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=seed + _count(folder), n_startup_trials=STARTUP),
        )
        known = self._study.user_attrs.get(ABOUT)
        if known is not None and known != json.loads(json.dumps(about)):
            different = ", ".join(
                key for key in about if known.get(key) != json.loads(json.dumps(about[key]))
            )
            raise TrbError(
                Code.USAGE,
                f"holds a search of something else: {different} differs",
                where=str(folder),
                remedy="name another folder with --output, or remove that one",
            )
        self._study.set_user_attr(ABOUT, dict(about))

    def earlier(self) -> list[tuple[dict[str, Value], Mapping[str, Any]]]:
        """Settings that an earlier run measured, with their results."""
        trials = self._study.get_trials(deepcopy=False)
        return [(dict(t.params), t.user_attrs[RESULT]) for t in trials if RESULT in t.user_attrs]

    def suggest(self, setting: Setting) -> None:
        """Have this one tried before those of the sampler."""
        self._study.enqueue_trial(dict(setting), skip_if_exists=True)

    def ask(self) -> Asked:
        """The next setting."""
        trial = self._study.ask()
        setting = {
            factor.name: trial.suggest_categorical(factor.name, list(factor.values)) for factor in self._space
        }
        return Asked(number=trial.number, setting=setting, trial=trial)

    def tell(self, asked: Asked, value: float, result: Mapping[str, Any]) -> None:
        """Keep what it gave, on disk, too.

        What was pruned counts with what it could have reached at most, what failed with 0: the sampler learns
        from that, and would not from Optuna's failed trials.
        """
        asked.trial.set_user_attr(RESULT, dict(result))
        self._study.tell(asked.trial, value)

    def forget(self, asked: Asked) -> None:
        """A trial that was interrupted."""
        self._study.tell(asked.trial, state=self._optuna.trial.TrialState.FAIL)


def _library() -> Any:
    if find_spec("optuna") is None:
        raise TrbError(
            Code.ENGINE_MISSING,
            "the search needs optuna, which is not installed",
            where="trb tune",
            remedy='pip install "triton_repo_builder[tune]"',
        )
    import optuna

    return optuna


def _storage(folder: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        folder.mkdir(parents=True, exist_ok=True)
        return JournalStorage(JournalFileBackend(str(folder / LOG)))
    except OSError as error:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            f"cannot be written: {error.strerror}",
            where=str(folder),
            remedy="name another folder with --output",
        ) from None


def _count(folder: Path | None) -> int:
    """Lines of the log so far: a run that goes on does not draw the same settings again."""
    file = folder / LOG if folder else None
    return file.read_bytes().count(b"\n") if file and file.is_file() else 0


def first_guesses(space: tuple[Factor, ...]) -> list[dict[str, Value]]:
    """The default, then what usually helps, one change after the other: the first settings that are tried.

    A good one early prunes many that follow.
    """
    setting = factors.default(space)
    made = [setting]
    usual = {factors.BATCHING: 0, factors.INSTANCES: 2, factors.MAX_BATCH: 8}
    for name, value in usual.items():
        if any(factor.name == name and value in factor.values for factor in space):
            setting = {**setting, name: value}
            made.append(setting)
    return made
