"""The frame around the pages of a log, and the pages for the token and for errors."""

from markupsafe import Markup

from sparklog.ui.templating import render


def frame(
    root: str, path: str, here: str, *, level: str | None = None, sign_out: bool = False
) -> Markup:
    """Return the links above every page, with the log's path and the level of its health.

    Args:
        root: The relative URL of the pages' root.
        path: The log's path.
        here: The title of the current link, "Overview" or "Topics", or another text.
        level: The level of the verdict, or None if it is unknown.
        sign_out: Whether to show the button that ends the session.
    """
    return render("frame.html", root=root, path=path, here=here, level=level, sign_out=sign_out)


def login_content(root: str, *, to: str = "", wrong: bool = False) -> Markup:
    """Return the form for the token.

    Args:
        root: The relative URL of the pages' root.
        to: The page to show after the login.
        wrong: Whether a wrong token was sent.
    """
    return render("login.html", root=root, to=to, wrong=wrong)


def failed_content(root: str, title: str, words: str) -> Markup:
    """Return a page that says why the requested one can't be shown."""
    return render("failed.html", root=root, title=title, words=words)
