"""The wheel made from the sdist has all it needs, installs, and works outside the checkout."""

import os
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from triton_repo_builder.base import process

ROOT = Path(__file__).resolve().parents[2]
DATA = {".html", ".jinja", ".toml", ".typed", ".txt", ".png", ".jpg", ".wav", ".flac", ".ogg"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the sdist, as PyPI's users get it (python -m build does both)."""
    target = tmp_path_factory.mktemp("dist")
    process.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)], timeout=300
    )
    return next(target.glob("*.whl"))


def test_wheel_contains_exactly_the_package_its_templates_and_the_dockerfile(wheel: Path) -> None:
    package = ROOT / "triton_repo_builder"
    expected = {
        f"triton_repo_builder/{path.relative_to(package).as_posix()}"
        for path in package.rglob("*")
        if path.suffix in {".py", *DATA} and "__pycache__" not in path.parts and "templates" not in path.parts
    }
    expected |= {f"triton_repo_builder/schema/{name}.schema.json" for name in ("manifest", "top")}
    for folder in ("templates", "docker"):
        files = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file())
        expected |= {f"triton_repo_builder/{path.as_posix()}" for path in files}
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == expected
    assert any(name.endswith(".jinja") for name in names)


def test_installed_wheel_builds_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    # Its dependencies come from this environment, itself from the wheel.
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    env = {**os.environ, "PYTHONPATH": ""}
    process.run(
        [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)], env=env
    )
    site = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = process.run(
        [str(python), "-c", "import triton_repo_builder as t; print(t.__file__)"], cwd=tmp_path, env=env
    )
    assert Path(where.strip()).is_relative_to(tmp_path)
    process.run(
        [str(python), str(ROOT / "examples" / "sentiment" / "make_model.py"), "model"], cwd=tmp_path, env=env
    )
    trb = str(tmp_path / "venv" / "bin" / "trb")
    said = process.run([trb, "build", "--model", "model", "--output", "repo"], cwd=tmp_path, env=env)
    assert "added" in said
    assert (tmp_path / "repo" / "model_model" / "config.pbtxt").is_file()
