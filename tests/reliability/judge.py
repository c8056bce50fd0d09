"""What a failed or killed command left: the old state, the new one, or one that the next command repairs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import reseal
import tiny

from tests.reliability import forked, scenarios
from tests.reliability.scenarios import REPO, Scenario, State
from triton_repo_builder.base.errors import Exit
from triton_repo_builder.repository.journal import record, seal

KILL, LOST = "KILL", "LOST"
ERRORS = {
    "ENOSPC": re.compile(r"disk is full|No space left|Out of diskspace", re.IGNORECASE),
    "EIO": re.compile(r"Input/output error", re.IGNORECASE),
    "EACCES": re.compile(r"Permission denied|insufficient permission", re.IGNORECASE),
}
"""How the message has to name each cause."""
_OF_GIT = re.compile(
    r"git \S+ failed: .*(unable to|cannot|could ?n[o']t|failed to)|git could not (write|read)",
    re.IGNORECASE | re.DOTALL,
)
"""git does not always say why it could not write; what it could not write is enough."""
_UNCHANGED = re.compile(r"is unchanged|is untouched|nothing was (?!sent)|no branch has moved|stays as it")
_DONE = re.compile(r"is built, but|is made, but")
_REPAIRED = re.compile(r"^note: .*(kill|interrupted|undone|finished|repaired|put back|half)", re.MULTILINE)
_REMEDY = re.compile(r"^  fix: .*(remove|undoes it)", re.MULTILINE)
_FRESH = re.compile(r"\.trb-[0-9a-f]{16}$")
"""End of the name of a file that was about to replace another."""
_LOCK = re.compile(r"^error: (\S+\.lock): ", re.MULTILINE)
"""git's, which it leaves to people to remove."""
_NEXT = (
    ("check", REPO),
    ("provenance", REPO),
    ("commit", REPO, "-m", "Next", "--weights", "git"),
    ("push", "oci://127.0.0.1:9/models/next:1", REPO),
)
"""Commands that read the repository: none of them may take a mixed one."""
UNREACHABLE = re.compile(r"\[storage-unreachable\]")
OLD_AGE = 3600
"""Seconds: a user's next command comes later than a minute after."""


@dataclass(frozen=True, kw_only=True)
class Known:
    """The states that are good, and where the command run again leads from each."""

    old: State
    new: State
    passing: tuple[State, ...]
    """Good states on the way."""
    again: frozenset[State]
    """States that the command leads to when it is run again."""

    def name(self, state: State) -> str:
        """``old``, ``new``, or empty for anything else."""
        if state == self.new or state in self.passing:
            return "new"
        return "old" if state == self.old else ""


@dataclass(kw_only=True)
class Verdict:
    """What came of one fault."""

    left: str = ""
    """``old``, ``new``, ``repaired`` or ``refused`` by the next command, with a remedy; else empty."""
    findings: list[str] = field(default_factory=list)
    missed: bool = False
    """The fault did not happen: the call was not made."""


class Judge:
    """Looks at what is left, and tries the next commands on copies of it."""

    def __init__(self, scenario: Scenario, known: Known) -> None:
        self.scenario = scenario
        self.known = known
        self._seen: dict[str, tuple[str, list[str]]] = {}

    def failed(self, root: Path, ended: forked.Ended, error: str) -> Verdict:
        """After a call failed with this error: either it did not matter, or the message names it."""
        state = self.known.name(scenarios.look(root, self.scenario))
        findings = []
        if ended.code == forked.HUNG:
            findings.append("hangs")
        elif ended.code < 0:
            findings.append(f"dies of signal {-ended.code}")
        elif ended.code == Exit.BUG or "Traceback" in ended.output:
            findings.append(f"traceback: {_last(ended.output)}")
        elif ended.code:
            if not (ERRORS[error].search(ended.output) or _OF_GIT.search(ended.output)):
                findings.append(f"the message does not name the cause: {_last(ended.output)}")
            if _UNCHANGED.search(ended.output) and state != "old":
                findings.append(f"says that nothing was changed, and it was: {_last(ended.output)}")
            elif state == "new" and not _DONE.search(ended.output):
                findings.append(f"fails though all is done: {_last(ended.output)}")
        elif state == "old" and self.known.old != self.known.new:
            findings.append(f"exits 0 though nothing was done: {_last(ended.output)}")
        verdict = self.left(root, state)
        verdict.findings[:0] = findings
        return verdict

    def left(self, root: Path, state: str = "") -> Verdict:
        """After a kill: what the next commands make of it; the same leftovers are looked at once."""
        key = self._signature(root)
        if key not in self._seen:
            state = state or self.known.name(scenarios.look(root, self.scenario))
            _age(root)
            self._seen[key] = self._left(root, state)
        left, findings = self._seen[key]
        return Verdict(left=left, findings=list(findings))

    def _left(self, root: Path, state: str) -> tuple[str, list[str]]:
        findings = []
        kinds = {state}
        if not state and self.scenario.look == "files":
            for command in _NEXT:
                kind, text = self._after(root, command)
                kinds.add(kind)
                findings += [f"trb {command[0]} afterwards {text}"] if text else []
        kind, text = self._again(root, state)
        findings += [f"the same command again {text}"] if text else []
        kinds.add(kind)
        kinds -= {""}
        left = next((kind for kind in ("refused", "repaired", "new", "old") if kind in kinds), "")
        return (left if not findings or state else ""), findings

    def _after(self, root: Path, command: tuple[str, ...]) -> tuple[str, str]:
        """One reading command on a copy: how it takes the state, and the finding."""
        with _Copy(root) as copy:
            ended = forked.trb(command, copy, env=scenarios.environment(copy))
            good = self.known.name(scenarios.look(copy, self.scenario))
            if ended.code == Exit.BUG or ended.code < 0 or "Traceback" in ended.output:
                return "", f"ends with a traceback: {_last(ended.output)}"
            if good:
                return ("repaired", "") if _REPAIRED.search(ended.output) else ("", "repairs without a word")
            if ended.code and not UNREACHABLE.search(ended.output):
                return "refused", ""
            return "", "takes the mixed repository without a word"

    def _again(self, root: Path, state: str) -> tuple[str, str]:
        """The same command once more, which has to lead where it would have led; by hand if it says so."""
        with _Copy(root) as copy:
            argv = scenarios.filled(self.scenario.again or self.scenario.argv, root)
            ended = forked.trb(argv, copy, env=scenarios.environment(copy))
            kind = "repaired"
            while ended.code and _REMEDY.search(ended.output) and (lock := _LOCK.search(ended.output)):
                (copy / lock[1]).unlink()
                kind = "refused"
                ended = forked.trb(argv, copy, env=scenarios.environment(copy))
            if ended.code == Exit.BUG or ended.code < 0 or "Traceback" in ended.output:
                return "", f"ends with a traceback: {_last(ended.output)}"
            after = scenarios.look(copy, self.scenario)
            if after not in self.known.again and not (ended.code == 0 and after == self.known.new):
                if ended.code and not state:
                    return "refused", ""
                return "", f"leads elsewhere (exit {ended.code}): {_last(ended.output)}"
            if ended.code == 0 and (stay := scenarios.leftovers(copy)):
                return "", f"leaves {len(stay)} staging folder(s)"
            if self.scenario.look == "git" and (broken := scenarios.git(copy, "fsck", "--strict")):
                return "", f"leaves git damaged: {_last(broken)}"
            if not state and kind == "repaired" and self.scenario.look == "files":
                return (kind, "") if _REPAIRED.search(ended.output) else ("", "repairs without a word")
            return "refused" if kind == "refused" else state or kind, ""

    def _signature(self, root: Path) -> str:
        """All that is in the folder, by content; staging folders by what is in them."""
        if self.scenario.look == "remote":
            return root.name
        facts = {
            _FRESH.sub(".trb-", path): reseal.content(root / path)
            if path.endswith(f"/{record.NAME}")
            else digest
            for path, digest in tiny.tree(root).items()
            if not path.startswith(("tmp", "home")) and not path.endswith(f"/{seal.MARK}")
        }
        return hashlib.sha256(repr(sorted(facts.items())).encode()).hexdigest()


class _Copy:
    """A copy of a run's folder with the same name, for one more command."""

    def __init__(self, root: Path) -> None:
        self._folder = root.parent / f"next.{os.getpid()}"
        self._root = root

    def __enter__(self) -> Path:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        return scenarios.copied(self._root, self._folder / self._root.name)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)


def _age(root: Path) -> None:
    """Make leftover folders older than those of a command that runs may be."""
    for folder in scenarios.leftovers(root):
        before = folder.stat().st_mtime - OLD_AGE
        os.utime(folder, (before, before))


def _last(output: str) -> str:
    """The error of an output without places, so that equal findings are equal texts."""
    lines = [
        line for line in output.splitlines() if line.startswith(("error", "fatal"))
    ] or output.splitlines()
    text = (lines or ["no message"])[-1]
    return re.sub(r"/\S*/", "…/", re.sub(r"\b[0-9a-f]{7,}\b|\.\d+\b", "…", text))[:160]
