"""An emulator of Google Cloud Storage on loopback, and Google's connector for Hadoop.

gcs.bucket()              gs://sparklog-1
gcs.objects("gs://...")   the names of the objects below a URL
"""

import contextlib
import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from tests import jars
from tests.ports import free_port
from tests.spark.conftest import jar
from tests.waiting import until

EMULATOR: Final = "github.com/fsouza/fake-gcs-server@v1.56.1"
CONNECTOR: Final = "com.google.cloud.bigdataoss:gcs-connector:3.1.3:jar:shaded"


class Gcs:
    """The server, with its data in memory."""

    def __init__(self, home: Path) -> None:
        with jars.or_skip("Google Cloud Storage"):
            program, (self._connector,) = emulator(), jars.artifact_jars("gcs", CONNECTOR)
        port = free_port()
        self.endpoint, self._home = f"http://127.0.0.1:{port}", home
        command = [
            program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1",
            "-port", str(port), "-external-url", self.endpoint,
            "-public-host", f"127.0.0.1:{port}",
        ]  # fmt: skip
        self._log = home / "gcs.log"
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=home, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        until(self._is_ready, "fake-gcs-server", state=self._log.read_text, pause_s=0.1)

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        try:
            self.call("GET", "storage/v1/b?project=x")
            return True
        except OSError:
            return False

    def call(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        """Send a request of the JSON API; return the answer."""
        request = urllib.request.Request(
            f"{self.endpoint}/{path}", json.dumps(content).encode() if content else None,
            {"Content-Type": "application/json"}, method=method,
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def bucket(self) -> str:
        """Make a bucket; return its URL."""
        name = f"sparklog-{uuid.uuid4().hex[:12]}"
        self.call("POST", "storage/v1/b?project=x", {"name": name})
        return f"gs://{name}"

    def objects(self, url: str) -> list[str]:
        """Return the names of the objects below a URL."""
        bucket, _, prefix = url.removeprefix("gs://").partition("/")
        query = urllib.parse.urlencode({"prefix": prefix, "maxResults": 100_000})
        answer = self.call("GET", f"storage/v1/b/{bucket}/o?{query}")
        return [each["name"] for each in answer.get("items", ())]

    def download(self, url: str, directory: Path) -> Path:
        """Copy the objects below a URL to a directory; return it."""
        bucket, _, prefix = url.removeprefix("gs://").partition("/")
        for name in self.objects(f"{url}/"):
            if name.endswith("/"):  # a marker of a directory, which the connector makes
                continue
            path = urllib.parse.quote(name, safe="")
            target = directory / name.removeprefix(f"{prefix}/")
            target.parent.mkdir(parents=True, exist_ok=True)
            with urllib.request.urlopen(
                f"{self.endpoint}/storage/v1/b/{bucket}/o/{path}?alt=media", timeout=30
            ) as answer:
                target.write_bytes(answer.read())
        return directory

    def requests(self) -> list[str]:
        """Return the server's log of requests."""
        return self._log.read_text().splitlines()

    def hadoop_conf(self) -> dict[str, str]:
        """Return Hadoop's settings for the server."""
        return {
            "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "fs.gs.auth.type": "UNAUTHENTICATED",
            "fs.gs.project.id": "x",
            "fs.gs.storage.root.url": f"{self.endpoint}/",
            # Hadoop 3.5's defaults are for its own connector: another class, and 64m.
            "fs.AbstractFileSystem.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFS",
            "fs.gs.block.size": "67108864",
        }

    def spark_conf(self) -> dict[str, str]:
        """Return Spark's settings for the server."""
        hadoop = {f"spark.hadoop.{name}": value for name, value in self.hadoop_conf().items()}
        return {"spark.jars": f"{self._connector},{jar()}", **hadoop}

    def class_path(self, **hadoop: str) -> list[str]:
        """Return the connector and Hadoop's settings for a JVM without Spark."""
        properties = [
            f"<property><name>{name}</name><value>{escape(value)}</value></property>"
            for name, value in {**self.hadoop_conf(), **hadoop}.items()
        ]
        directory = self._home / f"conf-{uuid.uuid4().hex}"
        directory.mkdir()
        (directory / "core-site.xml").write_text(
            f"<configuration>{''.join(properties)}</configuration>"
        )
        return [str(directory), self._connector]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def emulator() -> str:
    """Return the path of fake-gcs-server, which Go builds once. Raises: jars.Unavailable."""
    name, _, version = EMULATOR.rpartition("/")[2].partition("@")
    directory = jars.cache() / f"{name}-{version}"

    def build(target: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise jars.Unavailable("no go in PATH")
        done = subprocess.run(
            [go, "install", EMULATOR], env={**os.environ, "GOBIN": str(target)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        if done.returncode != 0:
            raise jars.Unavailable(f"go can't build {EMULATOR}: {done.stderr[-300:]}")

    jars.once(directory, build)
    return str(directory / name)


@contextlib.contextmanager
def running(home: Path) -> Iterator[Gcs]:
    """Start the server, and end it. Skips without the server or the connector."""
    server = Gcs(home)
    try:
        yield server
    finally:
        server.kill()
