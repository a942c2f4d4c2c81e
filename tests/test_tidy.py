"""House rules that a linter doesn't know, over every file that git would take."""

import ast
import re
import subprocess

from tests.paths import ROOT

MODULE_LINES_HINT = 400  # beyond it a module may hold two nouns: look, split only if it does
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100
# The engine asks the system for nothing by itself: files come from fs, time from clock.
DOORS = {"sparklog/clock.py"}  # sparklog/fs/ is no part of ENGINE
FORBIDDEN_CALLS = {
    "open", "time.time", "time.time_ns", "time.sleep", "datetime.now", "datetime.utcnow",
    "os.open", "os.replace", "os.rename", "os.remove", "os.unlink", "os.mkdir", "os.makedirs",
    "os.rmdir", "os.listdir", "os.scandir", "os.stat", "os.fsync", "os.fdatasync", "os.truncate",
    "os.link", "os.path.exists", "os.path.getsize", "os.path.isdir", "shutil.rmtree",
}  # fmt: skip
ENGINE = (
    "sparklog/format/", "sparklog/storage/", "sparklog/log/", "sparklog/logdir/", "sparklog/config",
    "sparklog/errors",
)  # fmt: skip
DEF = re.compile(r"( *)(?:(?:override|private(?:\[\w+\])?|protected|final) )*def ")
PRINTS = re.compile(r"\b(?:println|printStackTrace|System\.exit)\b")
SCALA_ABSOLUTE = re.compile(r'"(?:/home|/root|/tmp|/var|/usr|/opt|/mnt)\b')
ABSOLUTE = re.compile(r"""["'](/home|/root|/tmp|/var|/usr|/opt|/mnt)\b""")


def _files(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(f for f in set(listed.stdout.split("\n")) if f and (ROOT / f).is_file())


PYTHON = _files("*.py")
SCALA = _files("*.scala")
PACKAGE = [f for f in PYTHON if f.startswith("sparklog/") or re.fullmatch(r"\w+_sparklog\.py", f)]


PACKAGES = [f for f in PACKAGE if f.endswith("/__init__.py")]


def test_no_merge_is_unfinished() -> None:
    marks = ["git", "grep", "-lIE", r"^(<{7}|>{7}|={7}$)"]
    found = subprocess.run(marks, cwd=ROOT, capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")


def test_packages_list_their_modules_in_the_docstring() -> None:
    """A package's docstring is its map. Modules of the command line are named like its commands."""
    missing = {}
    for path in PACKAGES:
        directory = (ROOT / path).parent
        names = {f.stem for f in directory.glob("*.py")}
        names |= {f.parent.name for f in directory.glob("*/__init__.py")}
        if path == "sparklog/cli/__init__.py":
            names &= {"app", "command", "parsing", "output", "findings", "open_log", "storage"}
        words = re.findall(r"\w+", ast.get_docstring(ast.parse((ROOT / path).read_text())) or "")
        missing[path] = sorted(n for n in names - set(words) if not n.startswith("_"))
    assert {path: names for path, names in missing.items() if names} == {}


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_name(node.value)}.{node.attr}".removeprefix("datetime.datetime.")
    return node.id if isinstance(node, ast.Name) else "?"


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a docstring, which lists parameters and errors, and makes no function harder."""
    first = node.body[0]
    is_docstring = ast.get_docstring(node) is not None
    return (first.end_lineno or 0) - first.lineno + 1 if is_docstring else 0


def _breaches(path: str) -> list[str]:
    """What is wrong with one file, as `path:line: text`."""
    text = (ROOT / path).read_text()
    lines = text.splitlines()
    found = [
        f"{path}:{at}: {len(line)} columns, at most {COLUMNS_MAX}"
        for at, line in enumerate(lines, 1)
        if len(line) > COLUMNS_MAX
    ]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or 0) - node.lineno + 1 - _docstring_lines(node)
            if size > FUNCTION_LINES_MAX:
                found.append(f"{path}:{node.lineno}: {node.name} has {size} lines")
        if isinstance(node, ast.Call) and path.startswith("tests/") and _patches_private(node):
            found.append(f"{path}:{node.lineno}: patches a private name, which may be renamed")
        if isinstance(node, ast.Call) and path.startswith(ENGINE) and path not in DOORS:
            name = _name(node.func)
            if name in FORBIDDEN_CALLS or (name == "print" and path.startswith("sparklog/")):
                found.append(f"{path}:{node.lineno}: {name}() goes past fs and clock")
    return found


def _patches_private(call: ast.Call) -> bool:
    """Return whether a call of `setattr` or `patch.object` sets a private attribute."""
    if _name(call.func).rpartition(".")[2] not in ("setattr", "object") or len(call.args) < 2:
        return False
    name = call.args[1]
    return isinstance(name, ast.Constant) and re.match("_[^_]", str(name.value)) is not None


def test_python_files_are_tidy() -> None:
    assert [breach for path in PYTHON for breach in _breaches(path)] == []


def test_modules_have_a_docstring_and_no_absolute_path() -> None:
    texts = {path: (ROOT / path).read_text() for path in PACKAGE}
    filled = {path: text for path, text in texts.items() if text.strip()}
    assert [f for f, text in filled.items() if not ast.get_docstring(ast.parse(text))] == []
    assert [f for f, text in texts.items() if ABSOLUTE.search(text)] == []


def _scala_breaches(path: str) -> list[str]:
    """What is wrong with one Scala file; scalafmt sees to its layout (tests/scala.py)."""
    lines = (ROOT / path).read_text().splitlines()
    found = [
        f"{path}:{at}: {len(line)} columns, at most {COLUMNS_MAX}"
        for at, line in enumerate(lines, 1)
        if len(line) > COLUMNS_MAX and not line.startswith("import ")
    ]
    starts = [(at, m[1]) for at, line in enumerate(lines) if (m := DEF.match(line))]
    for at, indent in starts:
        ends = (n for n in range(at + 1, len(lines)) if lines[n].startswith(indent + "}"))
        nexts = (n for n in range(at + 1, len(lines)) if re.match(rf"{indent}\S", lines[n]))
        size = min(next(ends, at), next(nexts, len(lines))) - at + 1
        if size > FUNCTION_LINES_MAX:
            found.append(f"{path}:{at + 1}: {lines[at].strip()} has {size} lines")
    text = "\n".join(lines)
    if path.startswith("sparklog/"):
        if not re.search(r"^/\*\*", text, re.MULTILINE):
            found.append(f"{path}: no scaladoc says what it is")
        found += [f"{path}: {name} has no place in a library" for name in PRINTS.findall(text)]
        found += [f"{path} names an absolute path" for _ in SCALA_ABSOLUTE.findall(text)]
    return found


def test_scala_files_are_tidy() -> None:
    assert [breach for path in SCALA for breach in _scala_breaches(path)] == []


def hints() -> list[str]:
    """Modules that are worth a look; `make lint` prints them, nothing fails for them."""
    files = [*PACKAGE, *(f for f in SCALA if f.startswith("sparklog/"))]
    sizes = ((path, len((ROOT / path).read_text().splitlines())) for path in files)
    return [
        f"hint: {path} has {size} lines: does it hold two nouns?"
        for path, size in sizes
        if size > MODULE_LINES_HINT
    ]


def test_the_rules_are_not_asleep(tmp_path, monkeypatch):
    """Each rule finds what it is there for."""
    bad = tmp_path / "sparklog" / "log" / "bad.py"
    bad.parent.mkdir(parents=True)
    body = "    x = 1\n" * FUNCTION_LINES_MAX + '    os.rename("a", "b")\n'
    bad.write_text(f"import os\n{'#' * 101}\ndef f():\n{body}")
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    text = "\n".join(_breaches("sparklog/log/bad.py"))
    for want in ("101 columns", "f has 72 lines", "os.rename()"):
        assert want in text
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/bad.py").write_text("patch.setattr(module, '_name', 1)\n")
    assert "bad.py:1: patches a private name" in _breaches("tests/bad.py")[0]
    scala = bad.with_name("Bad.scala")
    rows = "    val x = 1\n" * FUNCTION_LINES_MAX
    scala.write_text(
        f"// {'#' * 98}\nclass Bad {{\n  def f(): Unit = {{\n{rows}    println(1)\n  }}\n"
        '  val place = "/tmp/x"\n  def g = 1\n}\n'
    )
    text = "\n".join(_scala_breaches("sparklog/log/Bad.scala"))
    for want in ("101 columns", "f(): Unit = { has 73 lines", "scaladoc", "println", "absolute"):
        assert want in text
    assert "def g" not in text


if __name__ == "__main__":
    print("\n".join(hints()))
