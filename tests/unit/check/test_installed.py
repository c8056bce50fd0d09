from __future__ import annotations

from pathlib import Path

import pytest

from triton_repo_builder.base import transfer
from triton_repo_builder.base.errors import Code, TrbError
from triton_repo_builder.check import installed, settings


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "cache_folder", lambda: tmp_path)


def test_modules_of_an_image_that_was_built() -> None:
    installed.record("registry:5000/team/server:1", ["numpy==1.26.4", "nvidia-pytriton==0.7.0", "pillow==11"])
    image = settings.image([], ["registry:5000/team/server:1", "mine"], None)
    assert image.modules == {"numpy", "pytriton", "PIL", "mine"}


def test_an_image_that_nobody_built_here() -> None:
    with pytest.raises(TrbError) as caught:
        settings.image([], ["server:2"], None)
    assert caught.value.code is Code.USAGE
