from __future__ import annotations

from pathlib import Path

import pytest
from bad_repositories import lay_out

from triton_repo_builder import check, repository
from triton_repo_builder.base import releases
from triton_repo_builder.base.errors import TrbError
from triton_repo_builder.check import baseline, settings
from triton_repo_builder.check.selection import comments


def codes(root: Path, toml: str) -> list[str]:
    (root / "trb.toml").write_text(toml)
    read = repository.read(root)
    found = settings.read(root / "trb.toml")
    return sorted({f.code for f in found.selection.of(check.check(read, releases.default()), read)})


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        (
            "",
            "ensemble-batch-size ensemble-key ensemble-shape ensemble-step-version name-mismatch "
            "preferred-size queue-delay-long tensor-dims tensor-duplicate",
        ),
        ('[check]\nselect = ["ensemble-*"]\nignore = ["ensemble-s*"]', "ensemble-batch-size ensemble-key"),
        ('[check]\nselect = ["tensor-*"]\n[check.models]\n"m*" = ["tensor-dims"]', "tensor-duplicate"),
    ],
)
def test_what_counts(tmp_path: Path, toml: str, expected: str) -> None:
    lay_out("several", tmp_path)
    assert " ".join(codes(tmp_path, toml)) == expected


def test_a_comment_holds_for_its_model(tmp_path: Path) -> None:
    lay_out("several", tmp_path)
    file = tmp_path / "m" / "config.pbtxt"
    file.write_text(f"# trb: ignore tensor-*, name-mismatch\n{file.read_text()}")
    assert codes(tmp_path, '[check]\nselect = ["tensor-*", "name-*"]') == []


def test_a_comment_may_stand_behind_a_field_and_not_in_a_string(tmp_path: Path) -> None:
    lay_out("several", tmp_path)
    file = tmp_path / "m" / "config.pbtxt"
    text = file.read_text()
    select = '[check]\nselect = ["tensor-*", "name-*"]'
    metric = 'metric_tags { key: "a" value: "\\"# trb: ignore *" }'
    file.write_text(f"{metric}\n{text}")
    assert "name-mismatch" in codes(tmp_path, select)
    file.write_text(f"{metric} # trb: ignore tensor-*, name-mismatch\n{text}")
    assert codes(tmp_path, select) == []


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("tensor-dims: the exporter's fault", ["tensor-dims"]),
        ("tensor-dims -- see tensor-duplicate", ["tensor-dims"]),
        ("tensor-dims (tensor-duplicate is none)", ["tensor-dims"]),
        ("tensor-* name-mismatch until the next export, of course", ["tensor-*", "name-mismatch"]),
        ("tensor-dims, tensor-duplicat", ["tensor-dims", "tensor-duplicat"]),
        ("tensor-dims tensor-duplicat", ["tensor-dims", "tensor-duplicat"]),
        ("all", ["all"]),
        ("policy-ours. They know.", ["policy-ours"]),
    ],
)
def test_codes_and_reason_of_a_comment(comment: str, expected: list[str]) -> None:
    text = f'name: "m" # trb: ignore {comment}\n'
    found = comments(text)
    assert [entry.code for entry in found] == expected
    assert all(text[entry.offset :].startswith(entry.code) for entry in found)


@pytest.mark.parametrize("text", ["", "[polcy.a]\nfield = 'name'\nrequired = true", "[check.policy.a]"])
def test_a_file_without_a_policy_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(TrbError):
        settings.read_policies([tmp_path / "p.toml"])


@pytest.mark.parametrize(
    "toml",
    [
        '[check]\nignore = ["tensor-dim"]',
        '[check]\nignored = ["tensor-dims"]',
        '[check]\nselect = "tensor-dims"',
        "[check]\ngpus = -1",
        "[check]\nselect = []",
        "[check]\nrelease = 24.10",
        "[check]\nbaseline = 3",
        '[check]\nmodules = ["nosuch.txt"]',
        "check = 1",
        '[check.models]\nm = "x"',
    ],
)
def test_mistakes_are_refused(tmp_path: Path, toml: str) -> None:
    (tmp_path / "trb.toml").write_text(toml)
    with pytest.raises(TrbError):
        settings.read(tmp_path / "trb.toml")


def test_requirements_are_modules(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("# x\n-i https://a\nscikit-learn==1.5 ; x\nzope-a>=1\n")
    image = settings.image(["python"], ["requirements.txt", "torch"], 2, tmp_path)
    assert image.modules == {"sklearn", "zope_a", "torch"}


def test_a_baseline_accepts_what_it_lists_and_no_more(tmp_path: Path) -> None:
    root = lay_out("several", tmp_path / "r")
    findings = check.check(repository.read(root), releases.default())
    file = tmp_path / "known.json"
    file.write_text(baseline.render([finding.relative_to(root) for finding in findings]))
    elsewhere = lay_out("several", tmp_path / "elsewhere")
    config = elsewhere / "m" / "config.pbtxt"
    config.write_text(
        f"# moved by a line\n{config.read_text()}input [ {{ data_type: TYPE_FP32 dims: [ 1 ] }} ]\n"
    )
    again = check.check(repository.read(elsewhere), releases.default())
    new = baseline.new(again, baseline.read(file), elsewhere)
    assert "tensor-incomplete" in {finding.code for finding in new}
    assert "tensor-dims" not in {finding.code for finding in new}
    file.write_text("[]")
    with pytest.raises(TrbError):
        baseline.read(file)
