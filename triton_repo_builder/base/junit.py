"""JUnit XML, which GitLab, Jenkins and other CI systems display."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree import ElementTree

_FORBIDDEN = re.compile(r"[^\t\n\r\u0020-\uD7FF\uE000-\uFFFD\U00010000-\U0010FFFF]")
"""Characters that XML 1.0 cannot write; names of files and answers of models may have them."""


Outcome = Literal["failure", "error", "skipped", "system-out"]


@dataclass(frozen=True, kw_only=True)
class JUnitCase:
    """A test case; ``system-out`` is the text of one that passed."""

    classname: str
    name: str
    outcome: Outcome = "system-out"
    message: str = ""
    text: str = ""
    seconds: float = 0.0


def document(name: str, cases: Sequence[JUnitCase]) -> str:
    """An XML document of one suite."""
    root = ElementTree.Element("testsuites")
    outcomes = [case.outcome for case in cases]
    suite = ElementTree.SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(cases)),
        failures=str(outcomes.count("failure")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
        time=f"{sum(case.seconds for case in cases):.3f}",
    )
    for case in cases:
        _append(suite, case)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _append(suite: ElementTree.Element, case: JUnitCase) -> None:
    element = ElementTree.SubElement(
        suite,
        "testcase",
        classname=_clean(case.classname),
        name=_clean(case.name),
        time=f"{case.seconds:.3f}",
    )
    if case.outcome != "system-out" or case.text:
        attributes = {"message": _clean(case.message)} if case.message else {}
        ElementTree.SubElement(element, case.outcome, attributes).text = _clean(case.text)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
