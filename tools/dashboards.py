"""Write the Grafana dashboards from `deploy/grafana/dashboards.yml`: `python -m tools.dashboards [--check]`.

The file lists panels: a title, a unit and queries. Everything else of the JSON of Grafana is the same for all of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

FOLDER: Final = Path(__file__).resolve().parents[1] / "deploy" / "grafana"
_WIDTH: Final = 24
_COLUMNS: Final = 3
_HEIGHT: Final = 8
# Grafana 9 and newer.
_SCHEMA: Final = 37
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def list_dashboards() -> Iterator[tuple[str, str]]:
    """Yield the name of each file and its JSON."""
    document = yaml.safe_load((FOLDER / "dashboards.yml").read_text(encoding="utf-8"))
    for dashboard in document["dashboards"]:
        made = _make_dashboard(dashboard, document["variables"], document["short"])
        yield f"{dashboard['name']}.json", json.dumps(made, indent=1) + "\n"


def _make_dashboard(
    dashboard: Mapping[str, Any], variables: Mapping[str, str], short: Mapping[str, str]
) -> dict[str, Any]:
    named = {name: variables[name] for name in dashboard["variables"]}
    return {
        "uid": dashboard["name"],
        "title": dashboard["title"],
        "tags": ["eruca"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_list_variables(named))},
        "links": [{"type": "dashboards", "title": "Eruca", "tags": ["eruca"], "asDropdown": True, "includeVars": True}],
        "panels": [_make_panel(index, panel, short) for index, panel in enumerate(dashboard["panels"])],
    }


def _make_panel(index: int, panel: Mapping[str, Any], short: Mapping[str, str]) -> dict[str, Any]:
    width = _WIDTH // _COLUMNS
    row, column = divmod(index, _COLUMNS)
    return {
        "id": index + 1,
        "type": panel.get("kind", "timeseries"),
        "title": panel["title"],
        "datasource": _SOURCE,
        "gridPos": {"x": column * width, "y": row * _HEIGHT, "w": width, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel["unit"], "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": _expand(each["query"], short),
                "legendFormat": each["legend"],
            }
            for place, each in enumerate(panel["queries"])
        ],
    }


def _expand(query: str, short: Mapping[str, str]) -> str:
    for word, text in short.items():
        query = query.replace(word, text)
    return query


def _list_variables(variables: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, query in variables.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": query,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        }


def main(*arguments: str) -> int:
    """Write all dashboards, or with --check only compare them; returns the exit status."""
    stale = []
    for name, text in list_dashboards():
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"out of date, run `make generate`: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
