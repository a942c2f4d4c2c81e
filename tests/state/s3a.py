"""Spark's settings for Hadoop's connector for S3."""

from pathlib import Path
from typing import Final

import pyspark

from tests import jars
from tests.spark.conftest import jar
from tests.tiered.s3 import KEY, SECRET, S3Server

POM: Final = Path(__file__).with_name("s3a.xml")
SDKS: Final = {"3.4.1": "2.24.5", "3.4.2": "2.29.52", "3.5.0": "2.57.8"}
"""Versions of Amazon's SDK, by version of Hadoop. Hadoop 3.4.1 names 2.24.6, and 3.4.2 names
2.29.52; Maven does not find the transfer manager of 2.24.6."""


def s3a_conf(s3: S3Server, port: int = 0) -> dict[str, str]:
    """Return Spark's settings for the server; `port`: by way of a proxy. Skips without the jars.

    S3A is that of the installed PySpark's Hadoop.
    """
    (client,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    hadoop = client.stem.removeprefix("hadoop-client-api-")
    versions = (f"-Dhadoop.version={hadoop}", f"-Dsdk.version={SDKS[hadoop]}")
    with jars.or_skip("S3A"):
        found = Path(jars.pom_jars(POM, "s3a", *versions)).parent
    s3a = {
        "endpoint": s3.options(port=port)["endpoint_url"], "endpoint.region": "us-east-1",
        "path.style.access": "true", "access.key": KEY, "secret.key": SECRET,
    }  # fmt: skip
    return {
        "spark.jars": ",".join([*map(str, sorted(found.glob("*.jar"))), jar()]),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }
