"""Which metrics and labels an expression asks for, held against those that there are."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from sparklog.kafka import network_metrics
from sparklog.metrics import Kind, Metric
from sparklog.service.metrics.names import METRICS
from sparklog.sink import progress

OF_ALL: Final = (*METRICS.values(), *network_metrics.METRICS, *progress.METRICS)
"""Those of logs and, from whatever ran in this process before, of clients and queries."""
OF_PROMETHEUS: Final = {"job", "instance", "log", "le", "quantile"}
"""Labels that a scrape, a rule or a kind of metric adds."""
_SELECTOR: Final = re.compile(r"\b((?:kafka|sparklog)_\w+|sparklog:\w+)(?:\{([^}]*)\})?")
_LABEL: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED: Final = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")


def series() -> dict[str, Metric]:
    """{name of a series: its metric}: of histograms and summaries several each."""
    found: dict[str, Metric] = {}
    for metric in OF_ALL:
        if metric.kind in (Kind.HISTOGRAM, Kind.SUMMARY):
            endings = ("_bucket", "_sum", "_count") if metric.kind is Kind.HISTOGRAM else (
                "", "_sum", "_count"
            )  # fmt: skip
            found |= {metric.name + ending: metric for ending in endings}
        else:
            found[metric.name] = metric
    return found


def unknown(expression: str, recorded: Collection[str] = ()) -> list[str]:
    """Return what of an expression's metrics and labels there is not."""
    plain = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    known, wrong, labels = series(), [], set(OF_PROMETHEUS)
    names = [(name, of) for name, of in _SELECTOR.findall(plain) if f'"{name}' not in expression]
    if not names:
        wrong.append("no metric")
    for name, inside in names:
        if name in recorded:
            labels |= {label for metric in known.values() for label in metric.labels}
            continue
        if name not in known:
            wrong.append(name)
            continue
        has = {*known[name].labels, *OF_PROMETHEUS}
        labels |= has
        wrong += [f"{name}{{{label}}}" for label in _LABEL.findall(inside) if label not in has]
    for group in _GROUPED.findall(plain):
        asked = {label.strip() for label in group.split(",") if label.strip()}
        wrong += [f"by {label}" for label in sorted(asked - labels)]
    return wrong
