"""One template for kustomize and Helm: markers, lines for charts, braces."""

from __future__ import annotations

import pytest

from triton_repo_builder.ship.targets.manifests import values

TEXT = """\
image: "⟦image⟧"
#: if .Values.x
  replicas: ⟦replicas⟧
    #|  kind: Rollout
  #: else
note: "{{ $labels.model }}"
  #: end
"""


def test_plain() -> None:
    assert values.plain(TEXT) == 'image: "⟦image⟧"\n  replicas: ⟦replicas⟧\nnote: "{{ $labels.model }}"\n'


def test_chart() -> None:
    assert (
        values.chart(TEXT)
        == """\
image: {{ .Values.image | quote }}
{{- if .Values.x }}
  replicas: {{ .Values.replicas }}
      kind: Rollout
{{- else }}
note: "{{ "{{" }} $labels.model {{ "}}" }}"
{{- end }}
"""
    )


@pytest.mark.parametrize(("number", "text"), [(2.0, "2"), (0.5, "500m"), (1.25, "1250m"), (64.0, "64")])
def test_cores(number: float, text: str) -> None:
    assert values.cores(number) == text


@pytest.mark.parametrize(
    ("count", "text"), [(4 << 30, "4Gi"), (1536 << 20, "1536Mi"), (1, "1Mi"), ((97 << 20) + 1, "98Mi")]
)
def test_size(count: int, text: str) -> None:
    assert values.size(count) == text
