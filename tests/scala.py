"""The layout of our Scala, and what its compiler warns of.

python -m tests.scala lint            what `make lint` asks: nothing is changed
python -m tests.scala format [FILE]   lay out all files, or these

The formatter is scalafmt, brought by Maven once (tests/jars.py); where it can't be had, lint says
so and goes on. What passed is remembered in the tests' cache, by the files' digest.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from sparklog.errors import InvalidRequestError
from sparklog.jvm import compiler
from tests import jars
from tests.paths import ROOT
from tests.test_tidy import COLUMNS_MAX

CONF = ROOT / ".scalafmt.conf"
POM = Path(__file__).with_name("scalafmt.xml")
PROBES = ROOT / "tests" / "jvm" / "scala"
STRICT = (
    "-Werror", "-Xlint", "-deprecation", "-feature", "-unchecked", "-Wdead-code",
    r"-Wconf:origin=org\.apache\.spark\..*:s",  # what Spark deprecates it still asks for
    "-Wconf:msg=in Scala 3:s",
)  # fmt: skip


def sources() -> list[str]:
    """Our Scala files, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.scala"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(name for name in set(listed.stdout.splitlines()) if (ROOT / name).is_file())


def formatter(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run scalafmt. Raises: jars.Unavailable."""
    class_path = jars.pom_jars(POM, "scalafmt")
    command = [jars.java(), "-XX:+UseSerialGC", "-cp", class_path, "org.scalafmt.cli.Cli"]
    options = ["--non-interactive", "--quiet", "--config", str(CONF)]
    return subprocess.run(
        [*command, *options, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=600
    )


def misplaced(files: list[str]) -> list[str]:
    """The files that scalafmt would lay out otherwise. Raises: jars.Unavailable."""
    with tempfile.TemporaryDirectory() as directory:
        copies = [Path(directory, name) for name in files]
        for copy, name in zip(copies, files, strict=True):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((ROOT / name).read_bytes())
        done = formatter(*map(str, copies))
        if done.returncode != 0:
            raise ValueError(f"scalafmt: {(done.stdout + done.stderr).strip()[:2000]}")
        pairs = zip(copies, files, strict=True)
        return [name for copy, name in pairs if copy.read_bytes() != (ROOT / name).read_bytes()]


def filled(text: str) -> str:
    """Fill comments anew from a line on that is too long: to the end of its paragraph.

    scalafmt leaves all comments alone here, for it would run the lines of tables together.
    """
    lines, out = text.split("\n"), list[str]()
    while lines:
        line = lines.pop(0)
        single = re.fullmatch(r"( *)/\*\* (.*) \*/", line)
        paragraph = re.fullmatch(r"( *(?:\*|//) )(\S.*)", line)
        if len(line) <= COLUMNS_MAX or not (single or paragraph):
            out.append(line)
        elif single:
            out += [f"{single[1]}/**", *_fill(f"{single[1]} * ", [single[2]]), f"{single[1]} */"]
        elif paragraph:
            words = [paragraph[2]]
            more = re.compile(re.escape(paragraph[1]) + r"(?![-@*|{])(\S.*)")
            while lines and (found := more.fullmatch(lines[0])) and "*/" not in lines[0]:
                words.append(found[1])
                lines.pop(0)
            out += _fill(paragraph[1], words)
    return "\n".join(out)


def _fill(prefix: str, words: list[str]) -> list[str]:
    width = COLUMNS_MAX - len(prefix)
    rows = textwrap.wrap(" ".join(words), width, break_long_words=False, break_on_hyphens=False)
    return [prefix + row for row in rows]


def warnings() -> str:
    """What the compiler warns of: sparklog's own, and the tests' that need nothing else.

    Raises: InvalidRequestError with its text, if there is anything or no Java or Spark.
    """
    probes = ((path.name, path.read_bytes()) for path in sorted(PROBES.glob("*.scala")))
    spark = compiler.Spark.installed()
    found = [*compiler.sources(spark.version), *((f"tests/{name}", text) for name, text in probes)]
    with tempfile.TemporaryDirectory() as directory:
        return compiler.compile_into(Path(directory), found, spark, *STRICT)


def lint() -> int:
    """Say what is wrong; return the exit code."""
    files = sources()
    told = [*files, str(CONF), str(POM), __file__]
    digest = hashlib.sha256(b"\0".join((ROOT / name).read_bytes() for name in told)).hexdigest()
    passed = jars.cache() / f"scala-lint-{digest[:16]}"
    if passed.exists():
        return 0
    faults = [*_layout(files), *_warnings()]
    if faults:
        print("\n".join(faults))
        return 1
    passed.touch()
    return 0


def _layout(files: list[str]) -> list[str]:
    try:
        wrong = misplaced(files)
    except jars.Unavailable as e:
        print(f"Scala's layout isn't checked: {e}")
        return []
    hint = "scalafmt lays it out otherwise: python -m tests.scala format"
    return [f"{name}: {hint} {name}" for name in wrong]


def _warnings() -> list[str]:
    try:
        jars.java()
        said = warnings()
    except jars.Unavailable as e:
        print(f"Scala's warnings aren't looked for: {e}")
        return []
    except InvalidRequestError as e:
        return [str(e)]
    return [said] if said else []


def main(command: str, *files: str) -> int:
    """Run a command; return the exit code."""
    if command == "format":
        for name in files or sources():
            path = ROOT / name
            path.write_text(filled(path.read_text()))
        done = formatter(*(files or sources()))
        print(done.stdout + done.stderr, end="")
        return done.returncode
    assert command == "lint", command
    return lint()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
