"""A real HDFS on loopback: a name node and a data node in one process, from Maven's jars.

hdfs.url        hdfs://localhost:PORT
hdfs.webhdfs    webhdfs://localhost:PORT, the same files over HTTP
"""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark

from tests import jars
from tests.ports import free_ports
from tests.waiting import until

POM: Final = Path(__file__).with_name("hdfs.xml")


class Hdfs:
    """A cluster with its data below `home`."""

    def __init__(self, home: Path) -> None:
        with jars.or_skip("HDFS"):
            java, cluster = jars.java(), jars.pom_jars(POM, "hdfs")
        port, http_port = free_ports(2)
        self.url = f"hdfs://localhost:{port}"
        self.webhdfs = f"webhdfs://localhost:{http_port}"
        self._log, started = home / "hdfs.log", home / "details.json"
        spark = Path(pyspark.__file__).parent / "jars" / "*"
        command = [
            java, "-Xmx512m", "-XX:+UseSerialGC", f"-Dtest.build.data={home}",
            "-cp", f"{cluster}{os.pathsep}{spark}",
            "org.apache.hadoop.test.MiniDFSClusterManager", "-format", "-datanodes", "1",
            "-nnport", str(port), "-httpport", str(http_port), "-writeDetails", str(started),
        ]  # fmt: skip
        with self._log.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=home, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        until(lambda: started.exists() or self._process.poll() is not None, "HDFS",
              state=self._log.read_text)  # fmt: skip
        assert self._process.poll() is None, self._log.read_text()[-3000:]

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(home: Path) -> Iterator[Hdfs]:
    """Start HDFS, and end it. Skips without the jars."""
    server = Hdfs(home)
    try:
        yield server
    finally:
        server.kill()
