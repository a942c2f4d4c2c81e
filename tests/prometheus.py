"""A real Prometheus for tests: scrapes real endpoints, and says over its API what it has."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.jars import Unavailable, cache
from tests.ports import free_port
from tests.promtool import RULES
from tests.waiting import until


def find() -> str:
    """Return its path: PROMETHEUS, PATH, what scripts/promtool fetched. Raises Unavailable."""
    given = os.environ.get("PROMETHEUS"), shutil.which("prometheus"), cache() / "prometheus"
    for path in given:
        if path and os.access(path, os.X_OK):
            return str(path)
    raise Unavailable("Prometheus is not on PATH; run `scripts/promtool prometheus` to fetch it")


class Prometheus:
    """Asks a running one. `url`: where it is."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str, **given: str) -> Any:
        """Return the data of an answer; an error of Prometheus' is an AssertionError with it."""
        query = urllib.parse.urlencode(given)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=240) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {given}: {error.read().decode()}") from None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an expression as of now."""
        found: list[dict[str, Any]] = self.get("query", query=expression)["result"]
        return found


@contextmanager
def running(directory: Path, targets: Sequence[str], *, scrape: str = "1s") -> Iterator[Prometheus]:
    """Start one that scrapes `targets` (host:port) as job sparklog, with the shipped rules.

    Raises Unavailable.
    """
    port = free_port()
    config = {
        "global": {"scrape_interval": scrape, "evaluation_interval": scrape},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "sparklog", "static_configs": [{"targets": list(targets)}]}
        ],
    }
    file = directory / "prometheus.yml"
    file.write_text(json.dumps(config))  # JSON is YAML
    command = [
        find(), f"--config.file={file}", f"--storage.tsdb.path={directory / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
    with (directory / "prometheus.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            found = Prometheus(f"http://127.0.0.1:{port}")

            def is_ready() -> bool:
                assert process.poll() is None, (directory / "prometheus.log").read_text()
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"{found.url}/-/ready", timeout=240).close()
                    return True
                return False

            until(is_ready, "Prometheus")
            yield found
        finally:
            process.terminate()
            process.wait(240)
