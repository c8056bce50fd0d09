"""Panels and dashboards in Grafana's JSON (schema of Grafana 11), laid out in rows of 24 columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 39
"""``schemaVersion`` of Grafana 11.0; newer versions migrate it when they load it."""
COLUMNS = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TAG = "trb"
EVERY = "$__rate_interval"
CHOSEN = 'model=~"${endpoint:pipe}", version=~"${version:pipe}"'
"""The models of the chosen endpoints: their names are patterns already, so Grafana must not escape them."""
PHASE = ', phase=~"${phase:pipe}"'
TIMES = (
    "Time of one execution in a phase (docs/metrics.md), such as tokenize, infer and answer. The time in a "
    "queue is not part of it."
)


@dataclass(frozen=True, kw_only=True)
class Query:
    """A query in PromQL."""

    expression: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A panel of a dashboard. ``kind`` is Grafana's type; a text has no queries."""

    title: str
    kind: str = "timeseries"
    queries: tuple[Query, ...] = ()
    about: str = ""
    """Shown at the panel's title."""
    unit: str = "short"
    width: int = 12
    height: int = 8
    text: str = ""
    """Markdown of a text panel."""
    stacked: bool = False
    rows: bool = False
    """A heat map with a row for each series, not for each bucket."""
    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Columns of a table: the query's letter to its title and unit."""
    overrides: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """A dashboard; panels follow each other from the left to the right."""

    uid: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    variables: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """The document that Grafana imports."""
        return {
            "uid": self.uid,
            "title": self.title,
            "description": self.about,
            "tags": [TAG, "triton"],
            "schemaVersion": SCHEMA,
            "editable": True,
            "graphTooltip": 1,
            "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"},
            "timezone": "browser",
            "annotations": {"list": []},
            "links": [
                {
                    **{"type": "dashboards", "title": TAG, "tags": [TAG], "asDropdown": True},
                    **{"includeVars": True, "keepTime": True, "targetBlank": False, "icon": "external link"},
                }
            ],
            "templating": {"list": list(self.variables)},
            "panels": _placed(self.panels),
        }


def rate(metric: str, by: str, matchers: str = "") -> str:
    """Growth a second, by some labels, of the chosen endpoints."""
    return f"sum by ({by}) (rate({metric}{{{CHOSEN}{matchers}}}[{EVERY}]))"


def heat(title: str, metric: str, unit: str = "short", matchers: str = "", **attributes: Any) -> Panel:
    """A heat map of a histogram over time."""
    query = f"sum by (le) (increase({metric}_bucket{{{CHOSEN}{matchers}}}[{EVERY}]))"
    return Panel(title=title, kind="heatmap", queries=(Query(expression=query),), unit=unit, **attributes)


def classes(title: str, metric: str, label: str, about: str) -> Panel:
    """A heat map with a row for each class."""
    query = f"sum by ({label}) (increase({metric}{{{CHOSEN}}}[{EVERY}]))"
    return Panel(
        title=title,
        kind="heatmap",
        queries=(Query(expression=query, legend=f"{{{{{label}}}}}"),),
        about=about,
        rows=True,
    )


def datasource() -> dict[str, Any]:
    """The variable with the Prometheus to ask."""
    return {
        **{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        **{"current": {}, "hide": 0, "includeAll": False, "multi": False, "regex": "", "refresh": 1},
    }


def choice(name: str, label: str, values: Mapping[str, str]) -> dict[str, Any]:
    """A variable with listed values, title → value; all of them at first."""
    everything = {"selected": True, "text": ["All"], "value": ["$__all"]}
    options = [{"selected": False, "text": title, "value": value} for title, value in values.items()]
    query = ",".join(f"{title.replace(',', ' ')} : {value}" for title, value in values.items())
    return {
        **{"name": name, "label": label, "type": "custom", "query": query, "current": everything},
        **{"options": [{**everything, "text": "All", "value": "$__all"}, *options]},
        **{"includeAll": True, "allValue": ".+", "multi": True, "hide": 0, "skipUrlSync": False},
    }


def label_values(name: str, label: str, metric: str) -> dict[str, Any]:
    """A variable with the values of a label; all of them at first."""
    query = f"label_values({metric},{name})"
    return {
        **{"name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query},
        **{"query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}},
        **{"current": {"selected": True, "text": ["All"], "value": ["$__all"]}, "options": []},
        **{"includeAll": True, "allValue": ".+", "multi": True, "hide": 0, "refresh": 2, "sort": 3},
        **{"regex": "", "skipUrlSync": False},
    }


def _placed(panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Panels with their places: a row of panels is as high as its first."""
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.width > COLUMNS:
            x, y = 0, y + height
        height = panel.height if x == 0 else height
        place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
        placed.append({"id": number, "gridPos": place, **_panel(panel)})
        x += panel.width
    return placed


def _panel(panel: Panel) -> dict[str, Any]:
    common: dict[str, Any] = {"type": panel.kind, "title": panel.title, "description": panel.about}
    if panel.kind == "text":
        return {**common, "options": {"mode": "markdown", "content": panel.text}}
    return {
        **common,
        "datasource": SOURCE,
        "targets": [_target(panel, letter, query) for letter, query in zip("ABCDEF", panel.queries)],  # noqa: B905
        "fieldConfig": {"defaults": _defaults(panel), "overrides": list(panel.overrides) + _columns(panel)},
        **_KINDS[panel.kind](panel),
    }


def _target(panel: Panel, letter: str, query: Query) -> dict[str, Any]:
    buckets = panel.kind == "heatmap" and not panel.rows
    kind = "table" if panel.kind == "table" else "heatmap" if buckets else "time_series"
    return {
        **{"refId": letter, "datasource": SOURCE, "editorMode": "code", "expr": query.expression},
        **{"format": kind, "instant": query.instant, "range": not query.instant},
        "legendFormat": "{{le}}" if buckets else query.legend or "__auto",
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    if panel.kind == "timeseries":
        filled = {"fillOpacity": 30, "stacking": {"mode": "normal", "group": "A"}} if panel.stacked else {}
        defaults |= {
            "min": 0,
            "custom": {
                "drawStyle": "line",
                "lineWidth": 1,
                "showPoints": "never",
                "fillOpacity": 10,
                "spanNulls": False,
                **filled,
            },
        }
    return defaults


def _timeseries(panel: Panel) -> dict[str, Any]:
    legend = {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []}
    return {"options": {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}}


def _stat(panel: Panel) -> dict[str, Any]:
    reduced = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    return {
        "options": {"reduceOptions": reduced, "graphMode": "area", "colorMode": "none", "textMode": "auto"}
    }


def _heatmap(panel: Panel) -> dict[str, Any]:
    return {
        "options": {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "exponent": 0.5, "reverse": False},
            "filterValues": {"le": 1e-9},
            "legend": {"show": True},
            "rowsFrame": {"layout": "auto"},
            "tooltip": {"mode": "single", "yHistogram": False},
            "yAxis": {"axisPlacement": "left", "unit": panel.unit if not panel.rows else "short"},
        }
    }


def _table(panel: Panel) -> dict[str, Any]:
    renamed = {f"Value #{letter}": title for letter, (title, _) in panel.columns.items()}
    return {
        "options": {"cellHeight": "sm", "showHeader": True},
        "transformations": [
            {"id": "merge", "options": {}},
            {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": renamed}},
        ],
    }


def _columns(panel: Panel) -> list[dict[str, Any]]:
    return [
        {"matcher": {"id": "byName", "options": title}, "properties": [{"id": "unit", "value": unit}]}
        for title, unit in panel.columns.values()
    ]


_KINDS = {"timeseries": _timeseries, "stat": _stat, "heatmap": _heatmap, "table": _table}
