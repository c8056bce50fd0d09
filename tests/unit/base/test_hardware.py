from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base import hardware


def quota(tmp_path: Path, member: str, **files: str) -> float | None:
    """``files``: content by path below the root, with ``__`` for a slash and a dot for each ``_of_``."""
    (tmp_path / "member").write_text(member)
    (tmp_path / "root").mkdir()
    for path, content in files.items():
        file = tmp_path / "root" / path.replace("__", "/").replace("_of_", ".")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n")
    return hardware.cpu_quota(tmp_path / "member", tmp_path / "root")


@pytest.mark.parametrize(
    ("limit", "wanted"), [("max 100000", None), ("50000 100000", 0.5), ("350000 100000", 3.5), ("junk", None)]
)
def test_version_2(limit: str, wanted: float | None, tmp_path: Path) -> None:
    assert quota(tmp_path, "0::/\n", cpu_of_max=limit) == wanted


def test_the_smallest_of_the_groups_above_counts(tmp_path: Path) -> None:
    found = quota(
        tmp_path,
        "0::/pods/a/b\n",
        pods__cpu_of_max="150000 100000",
        pods__a__cpu_of_max="400000 100000",
        pods__a__b__cpu_of_max="max 100000",
    )
    assert found == 1.5


@pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
@pytest.mark.parametrize(("limit", "wanted"), [("-1", None), ("150000", 1.5)])
def test_version_1(folder: str, limit: str, wanted: float | None, tmp_path: Path) -> None:
    """The group's path is the host's; a container sees its own group at the root."""
    place = f"{folder}__cpu_of_cfs"
    files = {f"{place}_quota_us": limit, f"{place}_period_us": "100000"}
    member = f"4:memory:/docker/1f\n3:{folder}:/docker/1f\n1:name=systemd:/docker/1f\n0::/\n"
    assert quota(tmp_path, member, **files) == wanted


@pytest.mark.parametrize("member", ["", "nonsense\n", "0::/../../else\n", "2:cpuset:/a\n"])
def test_no_quota_is_told(member: str, tmp_path: Path) -> None:
    assert quota(tmp_path, member) is None
    assert hardware.cpu_quota(tmp_path / "absent", tmp_path) is None


def test_here_it_can_be_asked() -> None:
    assert (hardware.cpu_quota() or 1) > 0
