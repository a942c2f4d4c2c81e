"""A cluster without a shared disk: streams into and out of a log in a bucket, workers killed.

    $ python examples/cluster.py s3://bucket/logs
    driver sees: driver; executors see: worker-1, worker-2
    worker-1 killed at 300 rows or more, worker-3 takes its place
    worker-2 killed at 1,000 rows or more, worker-4 takes its place
    visits: 2,000 rows, each once; copies: 2,000 rows, each once

Master, driver and each worker are what hosts are to one another: processes that see no directory
of the others', for each has a mount and a pid namespace of its own (Linux, as root or where
`unshare --user` is allowed) and nothing in common but the network and what is installed. Tasks put
rows straight into the bucket, and the driver commits them there. The checkpoints are the driver's
alone. Endpoint and keys come from the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...).
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyspark

import sparklog

ROWS, ROWS_PER_BATCH = 2000, 100
KILLS = {"worker-1": (300, "worker-3"), "worker-2": (1000, "worker-4")}
TOPICS = ("visits", "copies")
SPARK_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
HERE = "127.0.0.1"
SETTINGS = {
    "spark.driver.host": HERE,
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.task.maxFailures": "20",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def host(base: Path, name: str, *command: str) -> "subprocess.Popen[str]":
    """Start a command as if on another machine: below `base` it sees a directory of its own."""
    private = f'mount -t tmpfs {name} "$0" && mkdir -p "$0/{name}/tmp" && exec "$@"'
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    env = {**os.environ, "TMPDIR": f"{base}/{name}/tmp", "SPARK_LOCAL_DIRS": f"{base}/{name}",
           "SPARK_WORKER_DIR": f"{base}/{name}", "SPARK_LOCAL_IP": HERE,
           "PYSPARK_PYTHON": sys.executable}  # fmt: skip
    return subprocess.Popen(
        ["unshare", *user, "--mount-proc", "--pid", "--fork", "--kill-child", "sh", "-c", private,
         str(base), *command],
        env=env, text=True, stdout=subprocess.PIPE if name == "driver" else subprocess.DEVNULL,
        stderr=None if name == "driver" else subprocess.DEVNULL,
    )  # fmt: skip


def worker(base: Path, name: str, master: str) -> "subprocess.Popen[str]":
    return host(base, name, SPARK_CLASS, "org.apache.spark.deploy.worker.Worker", "--host", HERE,
                "--cores", "1", "--memory", "1g", "--webui-port", "0", master)  # fmt: skip


def main(url: str, base: Path) -> None:
    with socket.socket() as free:
        free.bind((HERE, 0))
        port = str(free.getsockname()[1])
    master = f"spark://{HERE}:{port}"
    hosts = {"master": host(base, "master", SPARK_CLASS, "org.apache.spark.deploy.master.Master",
                            "--host", HERE, "--port", port, "--webui-port", "0")}  # fmt: skip
    try:
        for name in KILLS:
            hosts[name] = worker(base, name, master)
        with sparklog.open(url, "rw") as log:
            for topic in TOPICS:
                log.create_topic(topic, partitions=2)
        hosts["driver"] = host(base, "driver", sys.executable, __file__, "--driver", master, url,
                               str(base))  # fmt: skip
        assert hosts["driver"].stdout is not None
        print(hosts["driver"].stdout.readline(), end="", flush=True)
        for name, (rows, other) in KILLS.items():
            wait_for(url, rows, hosts["driver"])
            hosts[name].send_signal(signal.SIGKILL)  # with all that runs there, as a host dies
            hosts[other] = worker(base, other, master)
            print(f"{name} killed at {rows:,} rows or more, {other} takes its place", flush=True)
        wait_for(url, ROWS, hosts["driver"])
        hosts["driver"].wait()
    finally:
        for one in hosts.values():
            one.kill()
            one.wait()
    with sparklog.open(url) as log:
        found = {topic: log.read(topic).read_all()["value"].to_pylist() for topic in TOPICS}
    wanted = sorted(str(number).encode() for number in range(ROWS))
    assert all(sorted(values) == wanted for values in found.values())
    print("; ".join(f"{topic}: {len(values):,} rows, each once" for topic, values in found.items()))


def wait_for(url: str, rows: int, driver: "subprocess.Popen[str]") -> None:
    """Wait until so many rows have come all the way."""
    with sparklog.open(url) as log:
        while sum(end for _, end in log.offsets("copies").values()) < rows:
            if driver.poll() is not None:
                raise SystemExit(f"the driver ended with {driver.returncode}")
            time.sleep(0.2)


def drive(master: str, url: str, base: Path) -> None:
    """The driver: both queries, until every row has come all the way."""
    from pyspark.sql import SparkSession

    from sparklog import sink

    builder = SparkSession.builder.master(master)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")

    def look(_: int) -> list[str]:
        time.sleep(0.2)  # so that every executor has its part
        return os.listdir(base)

    seen = spark.sparkContext.range(20, numSlices=20).map(look).collect()
    executors = sorted({" and ".join(names) for names in seen})
    print(f"driver sees: {', '.join(os.listdir(base))}; executors see: {', '.join(executors)}",
          flush=True)  # fmt: skip
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH).load()
    rows = rows.where(f"value < {ROWS}").selectExpr("cast(value as string) as value")
    visits = spark.readStream.format("sparklog").option("path", url).option("subscribe", "visits")
    copied = visits.option("startingOffsets", "earliest").load().select("value")
    for topic, frame in zip(TOPICS, (rows, copied), strict=True):
        writer = frame.writeStream.foreachBatch(sink.SegmentSink(url, topic))
        writer = writer.option("checkpointLocation", f"file://{base}/driver/checkpoint/{topic}")
        writer.trigger(processingTime="500 milliseconds").start()
    with sparklog.open(url) as log:
        while sum(end for _, end in log.offsets("copies").values()) < ROWS:
            spark.streams.awaitAnyTermination(1)  # raises what a query raised
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    if sys.argv[1] == "--driver":
        drive(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        with tempfile.TemporaryDirectory(prefix="sparklog-") as directory:
            main(sys.argv[1], Path(directory))
