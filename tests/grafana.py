"""Grafana for tests: a real one where there is one, and its own types of what a dashboard is.

No registry has Grafana's server as a package; its types are @grafana/schema at npm's.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import jars
from tests.jars import Unavailable
from tests.ports import free_port
from tests.waiting import until

SCHEMA = ("@grafana/schema@12.2.1", "typescript@5.9.3")
_PASSWORD = "for-a-test"  # of a server of this host that ends with the test


# --- the server ----------------------------------------------------------------------------------


def find() -> str:
    """Return the path of Grafana's server: GRAFANA, PATH. Raises Unavailable."""
    for name in (os.environ.get("GRAFANA", ""), "grafana", "grafana-server"):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    raise Unavailable("no Grafana: set GRAFANA to its program (bin/grafana), or put that on PATH")


@contextmanager
def running(directory: Path, prometheus: str, board: dict[str, Any]) -> Iterator[str]:
    """Start Grafana with a Prometheus and a dashboard provisioned; gives its URL.

    Raises Unavailable.
    """
    program = Path(find()).resolve()
    home = Path(os.environ.get("GRAFANA_HOME", program.parent.parent))
    places = directory / "provisioning"
    _write(places / "datasources" / "prometheus.yaml", {
        "apiVersion": 1,
        "datasources": [{
            "name": "Prometheus", "uid": "prometheus", "type": "prometheus", "access": "proxy",
            "url": prometheus, "isDefault": True, "jsonData": {"timeInterval": "1s"},
        }],
    })  # fmt: skip
    _write(places / "dashboards" / "files.yaml", {
        "apiVersion": 1,
        "providers": [{"name": "sparklog", "options": {"path": str(directory / "boards")}}],
    })  # fmt: skip
    _write(directory / "boards" / "sparklog.json", board)
    port = free_port()
    settings = {
        "GF_PATHS_DATA": str(directory / "data"), "GF_PATHS_LOGS": str(directory / "logs"),
        "GF_PATHS_PROVISIONING": str(places), "GF_SERVER_HTTP_ADDR": "127.0.0.1",
        "GF_SERVER_HTTP_PORT": str(port), "GF_SECURITY_ADMIN_PASSWORD": _PASSWORD,
        "GF_AUTH_ANONYMOUS_ENABLED": "true", "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
        "GF_ANALYTICS_REPORTING_ENABLED": "false", "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
        "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false", "GF_PLUGINS_PREINSTALL_DISABLED": "true",
    }  # fmt: skip
    command = [str(program), *([] if program.name == "grafana-server" else ["server"])]
    with (directory / "grafana.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "--homepath", str(home)], stdout=log, stderr=log, cwd=directory,
            env=dict(os.environ) | settings,
        )  # fmt: skip
        try:
            url = f"http://127.0.0.1:{port}"
            _wait(process, f"{url}/api/dashboards/uid/{board['uid']}", directory / "grafana.log")
            yield url
        finally:
            process.terminate()
            process.wait(240)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))  # JSON is YAML


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until the dashboard is there."""
    key = base64.b64encode(f"admin:{_PASSWORD}".encode()).decode()
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {key}"})

    def is_there() -> bool:
        assert process.poll() is None, log.read_text()[-3000:]
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=240).close()
            return True
        return False

    until(is_there, "Grafana's dashboard", state=lambda: log.read_text()[-3000:], pause_s=0.2)


@dataclass(slots=True)
class Drawn:
    """What a browser saw: panels that show an error, and those that drew data, by their titles."""

    errors: list[str] = field(default_factory=list)
    with_data: list[str] = field(default_factory=list)


def look(driver: Any, url: str, log: str, board: dict[str, Any]) -> Drawn:
    """Open every panel by itself in a browser, as Grafana's own "view" does."""
    drawn = Drawn()
    page = driver.new_page(viewport={"width": 1280, "height": 800})
    given = {"from": "now-2m", "to": "now", "kiosk": "", "var-job": "sparklog", "var-log": log}
    try:
        for panel in _panels(board):
            query = urllib.parse.urlencode(given | {"viewPanel": str(panel["id"])})
            page.goto(f"{url}/d/{board['uid']}/sparklog?{query}")
            box = page.locator(f'[data-testid="data-testid Panel header {panel["title"]}"]').first
            box.wait_for(timeout=30_000)
            page.wait_for_load_state("networkidle")
            if page.locator('[data-testid="data-testid Panel status error"]').count():
                drawn.errors.append(panel["title"])
            elif not box.get_by_text("No data", exact=True).count():
                drawn.with_data.append(panel["title"])
    finally:
        page.close()
    return drawn


def _panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel["panels"]
        else:
            yield panel


# --- its types -----------------------------------------------------------------------------------

_OF_PANELS = "@grafana/schema/dist/types/raw/composable"
_TYPES = f"""\
import type {{ AnnotationQuery, Dashboard, FieldConfig, Panel, RowPanel }} from '@grafana/schema';
import type * as timeseries from
  '{_OF_PANELS}/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen.d.ts';
import type * as stat from '{_OF_PANELS}/stat/panelcfg/x/StatPanelCfg_types.gen.d.ts';
"""
_BOARD = """\
// Enums by their values, as JSON has them.
type Plain<T> = unknown extends T ? T : T extends string ? `${T}` :
  T extends number | boolean | null | undefined ? T :
  T extends (infer U)[] ? Plain<U>[] : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
type Of<Type extends string, Options, Custom> =
  Omit<Plain<Panel>, 'type' | 'options' | 'fieldConfig'> & {
    type: Type;
    options: Plain<Options>;
    fieldConfig: {
      defaults: Omit<Plain<FieldConfig>, 'custom'> & { custom?: Plain<Custom> };
      overrides: never[];
    };
  };
type Drawn = Of<'timeseries', timeseries.Options, timeseries.FieldConfig> |
  Of<'stat', stat.Options, Record<string, never>>;
type Row = Omit<Plain<RowPanel>, 'panels'> & { panels: Drawn[] };
// What Prometheus adds to an annotation.
type Annotation = Plain<AnnotationQuery> & { expr: string; titleFormat: string };
export const board: Omit<Plain<Dashboard>, 'panels' | 'annotations'> & {
  panels: (Drawn | Row)[];
  annotations: { list: Annotation[] };
} =
"""


def types() -> Path:
    """Return a directory with Grafana's types and a compiler, brought by npm once.

    Raises Unavailable: no node or npm, or its registry doesn't answer.
    """
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("no npm and node in PATH")
    name = "-".join(each.rpartition("@")[2] for each in SCHEMA)

    def fetch(target: Path) -> None:
        (target / "package.json").write_text('{"private": true}')
        done = subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", *SCHEMA],
            cwd=target, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        if done.returncode:
            raise Unavailable(f"npm can't bring Grafana's types: {done.stderr.strip()[-300:]}")

    directory = jars.cache() / f"grafana-types-{name}"
    jars.once(directory, fetch)
    return directory


def type_faults(compiler: Path, board: dict[str, Any], directory: Path) -> str:
    """Return what TypeScript says of a dashboard's JSON; "" if nothing."""
    source = directory / "board.ts"
    source.write_text(f"{_TYPES}{_BOARD}{json.dumps(board, indent=1)};\n")
    modules = directory / "node_modules"
    if not modules.exists():
        modules.symlink_to(compiler / "node_modules")
    done = subprocess.run(
        [str(compiler / "node_modules" / ".bin" / "tsc"), "--noEmit", "--strict", "--skipLibCheck",
         "--preserveSymlinks", "--module", "esnext", "--moduleResolution", "bundler",
         "--target", "es2022", str(source)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    return done.stdout + done.stderr
