"""The search: Optuna's sampler, and a log from which a later run continues."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triton_repo_builder.base import files
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.measure.tune import factors
from triton_repo_builder.measure.tune.factors import Factor, Setting, Value

LOG = "study.log"
STARTUP = 8
"""Trials by chance before the sampler learns from them."""
KILLED = "; if that run was killed, a server behind --url still has its last setting: start it again"
ABOUT, RESULT = "about", "result"


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """A setting to measure."""

    number: int
    setting: dict[str, Value]
    trial: Any


class Search:
    """Settings to try, and their results."""

    def __init__(
        self, space: tuple[Factor, ...], about: Mapping[str, Any], folder: Path | None, seed: int
    ) -> None:
        optuna = _library()
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space, self._folder = space, folder
        self._optuna = optuna
        self._guesses: list[dict[str, Value]] = []
        with self._log():
            self._study: Any = optuna.create_study(
                study_name="trb tune",
                storage=_storage(folder) if folder else None,
                load_if_exists=True,
                direction="maximize",
                sampler=optuna.samplers.TPESampler(seed=seed + _count(folder), n_startup_trials=STARTUP),
            )
            stored = self._study.user_attrs.get(ABOUT)
        if stored is not None and stored != json.loads(json.dumps(about)):
            different = ", ".join(
                key for key in about if stored.get(key) != json.loads(json.dumps(about[key]))
            )
            raise TrbError(
                Code.USAGE,
                f"holds a search of something else: {different} differs",
                where=str(folder),
                remedy="name another folder with --output, or remove that one"
                + (KILLED if "configuration" in different else ""),
            )
        with self._log():
            self._study.set_user_attr(ABOUT, dict(about))

    def earlier(self) -> list[tuple[dict[str, Value], Mapping[str, Any]]]:
        """Settings that an earlier run measured, with their results."""
        with self._log():
            trials = self._study.get_trials(deepcopy=False)
        return [(dict(t.params), t.user_attrs[RESULT]) for t in trials if RESULT in t.user_attrs]

    def suggest(self, setting: Setting) -> None:
        """Try this setting before the sampler's suggestions.

        Not enqueued before it is asked for: a run that is killed would leave it to the next in another order.
        """
        self._guesses.append(dict(setting))

    def ask(self) -> Suggestion:
        """The next setting."""
        with self._log():
            if self._guesses:
                self._study.enqueue_trial(self._guesses.pop(0))
            trial = self._study.ask()
            setting = {
                factor.name: trial.suggest_categorical(factor.name, list(factor.values))
                for factor in self._space
            }
        return Suggestion(number=trial.number, setting=setting, trial=trial)

    def tell(self, suggestion: Suggestion, value: float, result: Mapping[str, Any]) -> None:
        """Record the result, on disk too.

        A pruned trial counts with its upper bound, a failed one with 0: the sampler learns
        from that, and would not from Optuna's failed trials.
        """
        with self._log():
            suggestion.trial.set_user_attr(RESULT, dict(result))
            self._study.tell(suggestion.trial, value)

    def forget(self, suggestion: Suggestion) -> None:
        """Mark an interrupted trial as failed."""
        with self._log():
            self._study.tell(suggestion.trial, state=self._optuna.trial.TrialState.FAIL)

    @contextmanager
    def _log(self) -> Iterator[None]:
        """Turn any failure of the log into one ``TrbError``."""
        try:
            yield
        except OSError as error:
            where = (self._folder or Path()) / LOG
            raise files.explain(error, where, how="with --output", kept="what it holds is kept") from None
        except (*files.DAMAGED, AssertionError) as error:
            if self._folder is None:
                raise
            raise TrbError(
                Code.USAGE,
                f"is no log of a search that can go on ({type(error).__name__}: {error!s:.80})",
                where=str(self._folder / LOG),
                remedy="name another folder with --output, or remove that file",
            ) from None


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
        _cut(folder / LOG)
        return JournalStorage(JournalFileBackend(str(folder / LOG)))
    except OSError as error:
        raise TrbError(
            Code.OUTPUT_NOT_WRITABLE,
            f"cannot be written: {error.strerror}",
            where=str(folder),
            remedy="name another folder with --output",
        ) from None


def _cut(log: Path) -> None:
    """Remove an incomplete last line, to which Optuna would append the next one.

    Raises OSError for a link, through which it would write into another file.
    """
    if not os.path.lexists(log):
        return
    with os.fdopen(os.open(log, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC), "r+b") as file:
        kept = file.read().rfind(b"\n") + 1
        file.truncate(kept)


def _count(folder: Path | None) -> int:
    """Lines of the log so far: a run that goes on does not draw the same settings again."""
    file = folder / LOG if folder else None
    return files.read(file).count(b"\n") if file and file.is_file() else 0


def first_guesses(space: tuple[Factor, ...]) -> list[dict[str, Value]]:
    """The default, then what usually helps, one change after the other: the first settings that are tried.

    A good one early prunes many that follow.
    """
    setting = factors.default(space)
    settings = [setting]
    usual = {factors.BATCHING: 0, factors.INSTANCES: 2, factors.MAX_BATCH: 8}
    for name, value in usual.items():
        if any(factor.name == name and value in factor.values for factor in space):
            setting = {**setting, name: value}
            settings.append(setting)
    return settings
