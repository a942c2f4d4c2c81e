"""The page with the login form."""

from http import HTTPStatus

from sparklog.html import el
from sparklog.ui.http_messages import HttpRequest, HttpResponse
from sparklog.ui.report.page_parts import note, section
from sparklog.ui.report.page_shell import asset, document


def login_page(
    request: HttpRequest, status: HTTPStatus = HTTPStatus.OK, *, to: str = "", wrong: bool = False
) -> HttpResponse:
    """Return the form. `to`: the requested page; `wrong`: whether a wrong token was given."""
    form = el(
        "form",
        el("label", "Token", for_="token"),
        el("input", type="password", name="token", id="token", required=True, autofocus=True,
           autocomplete="current-password", aria_invalid="true" if wrong else None,
           aria_describedby="wrong" if wrong else None),
        el("input", type="hidden", name="to", value=to),
        el("button", "Show the log", class_="primary"),
        method="post", action=f"{request.root}login", class_="ask",
    )  # fmt: skip
    said = el("p", "That isn't the token.", id="wrong", class_="bad", role="alert")
    text = document(
        "sparklog",
        el("header", el("h1", "sparklog")),
        section("login", "This log is shown with a token", form, said if wrong else None,
                note("It is in the file of --ui-token-file, and whoever started the server has it. "
                     "Programs send it as Authorization: Bearer.")),
        styles=[asset("browse.css", "sparklog.ui")],
        forms=True,
    )  # fmt: skip
    return HttpResponse(body=text, status=status, forms=True)
