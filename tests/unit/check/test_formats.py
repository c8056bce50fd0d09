from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_repo_builder.check.finding import Finding
from triton_repo_builder.check.formats import FORMATS
from triton_repo_builder.check.result import Report

NAMES = ("bert", "a b", 'quo"te', "new\nline", "esc\x1b[31m", "bad\udcff", "a,b:c%d", "<m>&", "日本")


FILES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1)


def report(*names: str) -> Report:
    findings = tuple(
        Finding(
            severity="error",
            code="tensor-dims",
            where=f"r/{name}/config.pbtxt:2:3",
            message=f"wrong in {name}",
            remedy="write -1",
            model=name,
            file=f"r/{name}/config.pbtxt",
            line=2,
            column=3,
        )
        for name in names
    )
    texts = {finding.file: "first\n\tdims: 0\n" for finding in findings}
    return Report(findings=findings, models=len(names), texts=texts)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_takes_every_name(form: str) -> None:
    text = FORMATS[form](report(*NAMES))
    text.encode("utf-8")
    assert "\x1b" not in text
    assert FORMATS[form](report())


def test_json_has_the_place_in_fields() -> None:
    entry = json.loads(FORMATS["json"](report("new\nline")))[0]
    assert (entry["model"], entry["file"]) == ("new\nline", "r/new\nline/config.pbtxt")
    assert (entry["line"], entry["column"]) == (2, 3)


def test_sarif_points_to_the_region() -> None:
    run = json.loads(FORMATS["sarif"](report("a b")))["runs"][0]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "r/a%20b/config.pbtxt"
    assert place["region"] == {"startLine": 2, "startColumn": 3}
    assert run["tool"]["driver"]["rules"][run["results"][0]["ruleIndex"]]["id"] == "tensor-dims"


@cache
def sarif_validator() -> jsonschema.Draft4Validator:
    schema = Path(__file__).parents[2] / "data" / "schemas" / "sarif-2.1.0.json"
    return jsonschema.Draft4Validator(json.loads(schema.read_text()))


@pytest.mark.slow
@given(st.lists(FILES, max_size=4))
def test_sarif_is_valid_by_its_schema(names: list[str]) -> None:
    for findings in (report(*names), report(*NAMES)):
        sarif_validator().validate(json.loads(FORMATS["sarif"](findings)))


@given(FILES)
def test_each_annotation_is_one_line_and_each_report_xml(name: str) -> None:
    command, totals = FORMATS["github"](report(name)).split("\n")
    properties, _, message = command.removeprefix("::error ").partition("::")
    keys = [entry.partition("=")[0] for entry in properties.split(",")]
    assert keys == ["file", "line", "col", "title"]
    assert ":" not in properties
    assert "wrong in" in message
    assert totals.startswith("1 model checked")
    assert len(ElementTree.fromstring(FORMATS["junit"](report(name)))[0]) == 1


def test_the_schema_refuses_what_is_wrong() -> None:
    document = json.loads(FORMATS["sarif"](report("m")))
    document["runs"][0]["results"][0]["level"] = "fatal"
    with pytest.raises(jsonschema.ValidationError):
        sarif_validator().validate(document)


def test_github_escapes_what_ends_a_property() -> None:
    line = FORMATS["github"](report("a,b:c%d")).splitlines()[0]
    assert line == (
        "::error file=r/a%2Cb%3Ac%25d/config.pbtxt,line=2,col=3,title=tensor-dims::"
        "wrong in a,b:c%25d (fix: write -1)"
    )


def test_junit_counts() -> None:
    suite = ElementTree.fromstring(FORMATS["junit"](report("m", "<m>&")))[0]
    assert (suite.get("tests"), suite.get("failures")) == ("2", "2")
    assert [case.get("classname") for case in suite] == ["m", "<m>&"]


def test_the_caret_stands_under_the_column() -> None:
    lines = FORMATS["text"](report("m")).splitlines()
    assert lines[:4] == [
        "r/m/config.pbtxt:2:3: error: wrong in m [tensor-dims]",
        "     dims: 0",
        "      ^",
        "  fix: write -1",
    ]
