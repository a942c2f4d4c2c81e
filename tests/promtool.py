"""promtool, Prometheus' own judge of rules: finds it, and asks it what fires."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.jars import Unavailable, cache
from tests.paths import ROOT

RULES = ROOT / "sparklog" / "service" / "metrics" / "alerts.yml"
USED = sorted(set(re.findall(r"\b(?:kafka|sparklog)_[a-z_]+", RULES.read_text())))
_USED = re.compile(rf"(?:# (?:TYPE|HELP) )?(?:{'|'.join(USED)})[ {{]")


def promtool() -> str:
    """Return its path: PROMTOOL, PATH, what scripts/promtool fetched. Raises Unavailable."""
    fetched = cache() / "promtool"
    given = os.environ.get("PROMTOOL"), shutil.which("promtool"), str(fetched)
    for path in given:
        if path and os.access(path, os.X_OK):
            return path
    raise Unavailable("promtool is not on PATH; run scripts/promtool to fetch it")


def parsed(text: str) -> list[Sample]:
    """Return the samples of an endpoint's answer, as Prometheus reads it."""
    return [s for family in text_string_to_metric_families(text) for s in family.samples]


class Scrapes:
    """What an endpoint said, minute by minute, as input for `promtool test rules`.

    Times of day are moved so that the first scrape is at the epoch, where promtool's clock begins.
    """

    def __init__(self, began_ms: int) -> None:
        self._began_ms = began_ms
        self._values: dict[str, dict[int, float]] = defaultdict(dict)
        self.minutes = 0

    def add(self, text: str, minute: int) -> None:
        """Take one answer in."""
        self.minutes = max(self.minutes, minute)
        for sample in parsed(_asked_for(text)):
            labels = sample.labels | {"job": "sparklog", "instance": "host:9404"}
            inside = ",".join(f"{k}={json.dumps(v)}" for k, v in sorted(labels.items()))
            value = float(sample.value)
            if sample.name.endswith("_timestamp_seconds"):
                value -= self._began_ms / 1000
            self._values[f"{sample.name}{{{inside}}}"][minute] = value

    def hold(self, text: str, minutes: int) -> None:
        """The same answer for so many minutes."""
        for _ in range(minutes):
            self.add(text, self.minutes + 1)

    def silence(self, minutes: int) -> None:
        """Nobody answered."""
        self.minutes += minutes

    def firing(self, directory: Path, at: int, names: set[str]) -> None:
        """Assert that exactly these alerts fire at minute `at`."""
        series = [
            {
                "series": name,
                "values": " ".join(
                    _text(values.get(minute)) for minute in range(self.minutes + 1)
                ),
            }
            for name, values in self._values.items()
        ]
        fired = 'group by (alertname) (ALERTS{alertstate="firing"})'
        expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)]
        case = {
            "rule_files": [str(RULES)],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": series,
                    "promql_expr_test": [
                        {"expr": fired, "eval_time": f"{at}m", "exp_samples": expected}
                    ],
                }
            ],
        }
        path = directory / "case.json"  # JSON is YAML
        path.write_text(json.dumps(case))
        done = subprocess.run(
            [promtool(), "test", "rules", str(path)], capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def _asked_for(text: str) -> str:
    """The lines that a rule asks for; to parse all of them takes long."""
    return "".join(line for line in text.splitlines(keepends=True) if _USED.match(line))


def _text(value: float | None) -> str:
    return "_" if value is None else repr(value)
