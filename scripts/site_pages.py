"""Hooks of mkdocs that add pages from outside of docs/ to the site.

The README is the site's first page. The protocols, the file formats, the examples, the changelog
and the guide for contributors are stored elsewhere in the repository. Their text is not changed,
except for links: a link between two of these files becomes a link between pages, and a link to a
file that is not a page becomes the name of the file.
"""

import ast
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "tests/README.md": "test-suite.md",
    "CHANGELOG.md": "changelog.md",
    "sparklog/format/README.md": "format.md",
    "sparklog/logdir/PROTOCOL.md": "protocol-log-dir.md",
    "sparklog/tiered/PROTOCOL.md": "protocol-tier.md",
    "sparklog/diskless/PROTOCOL.md": "protocol-bucket.md",
    "sparklog/checkpoint/log_backed/PROTOCOL.md": "protocol-checkpoint.md",
}
SOURCES = {page: source for source, page in PAGES.items()}
EXAMPLES = "examples.md"
FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^<!--.*?-->[ \t]*\n?", re.MULTILINE | re.DOTALL)
IMAGE = re.compile(r"""(?<=["'])docs/(?=images/)""")  # in the README's HTML
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are stored outside of docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, EXAMPLES, content=_examples()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Remove comments, and correct links and the bars in tables' code, except in fenced blocks."""
    here = page.file.src_uri
    parts, at = [], 0
    for fence in FENCE.finditer(markdown):
        parts += [_mended(markdown[at : fence.start()], here, files), fence[0]]
        at = fence.end()
    return "".join([*parts, _mended(markdown[at:], here, files)])


def _mended(text: str, here: str, files: Files) -> str:
    text = LINK.sub(lambda link: _link(link, here, files), COMMENT.sub("", text))
    text = IMAGE.sub("", text)
    # GitHub requires bars in a table's code to be escaped; Python's Markdown shows the backslash.
    return re.sub(
        r"^\|.*$",
        lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace(r"\|", "|"), row[0]),
        text,
        flags=re.MULTILINE,
    )


def _link(link: re.Match[str], here: str, files: Files) -> str:
    mark, text, target = link.groups()
    path, _, anchor = target.partition("#")
    if not path or ":" in path:
        return link[0]
    source = SOURCES.get(here, "examples/README.md" if here == EXAMPLES else f"docs/{here}")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = PAGES.get(wanted, wanted.removeprefix("docs/"))
    if wanted.startswith("examples"):
        page, anchor = EXAMPLES, anchor or _slug(wanted)
    if files.get_file_from_path(page) is None:
        if not (ROOT / wanted).exists():
            return link[0]  # unchanged, so that mkdocs --strict reports the broken link
        return text if "`" in text else f"`{text}`"
    page = posixpath.relpath(page, posixpath.dirname(here) or ".")
    return f"{mark}[{text}]({page}{'#' * bool(anchor)}{anchor})"


def _slug(path: str) -> str:
    """Return the anchor of an example's heading."""
    name = "" if path in ("examples", "examples/README.md") else path.removeprefix("examples/")
    return re.sub(r"[^\w-]", "", name)


def _examples() -> str:
    """Return a page with the docstring and the code of each example."""
    said = [(ROOT / "examples/README.md").read_text()]
    for path in sorted((ROOT / "examples").iterdir()):
        if path.name.startswith(("_", ".")) or path.suffix == ".md":
            continue
        said.append(f"\n## {path.name}\n")
        for file in [path] if path.is_file() else sorted(path.glob("*.py")):
            if path.is_dir():
                said.append(f"\n### {path.name}/{file.name}\n")
            said.append(_example(file.read_text()))
    return "".join(said)


def _example(code: str) -> str:
    docstring = ast.get_docstring(ast.parse(code)) or ""
    fenced = f"```python\n{code.rstrip()}\n```"
    folded = f"<details markdown><summary>The code</summary>\n\n{fenced}\n\n</details>"
    return f"\n{docstring}\n\n{folded}\n"
