"""The pages of those who come: the form, the wait, the card, and what a page says when there is none."""

from __future__ import annotations

from collections.abc import Callable

from tpufleet.board.markup import form, moved, page, to
from tpufleet.board.reception import Stage, Visit
from tpufleet.board.signup import Form
from tpufleet.cards import UNIX, WINDOWS, key_file, unix_file, windows_file
from tpufleet.personkey import refuse_private
from tpufleet.report.cards import card_element
from tpufleet.report.html import Child, Element, el

REFRESH_S = 3
LONGEST = 40  # of a code or a name that is shown again
SHARE = "My completions may be shown on the board, and what I train may be kept."


def join_page(fleet: str, typed: Form, wrong: dict[str, str], *, key: str = "") -> str:
    """The form, with what is `wrong` beside the fields. What was typed stays, but for a key that wasn't sound."""
    general = wrong.get("")
    return page(
        f"{fleet}: sign up",
        el(
            "main",
            el("p", fleet, class_="kind"),
            el("h1", "Sign up"),
            el("p", "You get an account of your own on the fleet's machines, and a chip to train on.", class_="lead"),
            el("p", general, class_="error", role="alert") if general else None,
            el("p", f"Not sent yet: {_mistakes(wrong)}", class_="error", role="alert") if _fields(wrong) else None,
            _form(typed, wrong, key),
            _how(fleet),
            class_="narrow",
        ),
    )


def _fields(wrong: dict[str, str]) -> list[str]:
    return [name for name in wrong if name]


def _mistakes(wrong: dict[str, str]) -> str:
    count = len(_fields(wrong))
    return "one field needs another look." if count == 1 else f"{count} fields need another look."


def _form(typed: Form, wrong: dict[str, str], key: str) -> Element:
    plain = {"autocapitalize": "none", "autocorrect": "off", "spellcheck": "false", "autocomplete": "off"}
    return form(
        "/join",
        _field(
            "code",
            "Invitation code",
            "As it stands on the invitation.",
            el("input", **_common("code", wrong), value=_visible(typed.code), maxlength=LONGEST, **plain),
            wrong,
        ),
        _field(
            "name",
            "Name",
            "Of your account: small letters and digits, such as ada.",
            el("input", **_common("name", wrong), value=_visible(typed.name), maxlength=32, **plain),
            wrong,
        ),
        _field(
            "key",
            "Public key",
            "The one line of the file whose name ends in .pub. It begins with ssh-ed25519, for instance.",
            el("textarea", key, **_common("key", wrong), rows=5, **plain),
            wrong,
        ),
        el(
            "label",
            el("input", type="checkbox", name="share", value="yes", checked=typed.share),
            el("span", SHARE),
            class_="check",
        ),
        el("button", "Sign up", type="submit"),
    )


def _visible(typed: str) -> str:
    """What was typed, as it can be shown in its field again; nothing of what may be a secret in the wrong field."""
    try:
        refuse_private(typed)
    except ValueError:
        return ""
    return typed if len(typed) <= LONGEST and typed.isprintable() else ""


def _common(name: str, wrong: dict[str, str]) -> dict[str, str | bool]:
    described = f"{name}-help {name}-error" if name in wrong else f"{name}-help"
    attributes: dict[str, str | bool] = {"id": name, "name": name, "required": True, "aria_describedby": described}
    return attributes | ({"aria_invalid": "true"} if name in wrong else {})


def _field(name: str, label: str, help_: str, control: Element, wrong: dict[str, str]) -> Element:
    return el(
        "div",
        el("label", label, for_=name),
        el("p", help_, class_="help", id=f"{name}-help"),
        el("p", wrong[name], class_="error", id=f"{name}-error") if name in wrong else None,
        control,
        class_="field",
    )


def _how(fleet: str) -> Element:
    """How to make the key that the card's lines then name."""
    name = key_file(fleet)

    def lines(where: str, file: Callable[[str], str]) -> Child:
        commands = f"ssh-keygen -t ed25519 -f {file(name)}\ncat {file(f'{name}.pub')}"
        return [el("p", where, class_="where"), el("pre", el("code", commands))]

    return el(
        "section",
        el("h2", "How to make a key"),
        el("p", "In a terminal on the computer that you will log in from. The second line shows what to send:"),
        lines(UNIX, unix_file),
        lines(WINDOWS, windows_file),
        el(
            "p",
            "You have a key already? Send that one's .pub file, and name its file in your card's lines, after -i. "
            "The file without .pub is the key itself, which nobody but you may ever see.",
        ),
        class_="how",
    )


def visit_page(fleet: str, visit: Visit) -> str:
    """Somebody's own page: the card, or what it waits for."""
    name = str(visit.sign_up.name)
    if visit.stage is Stage.READY and visit.card is not None:
        shared = "may be shown on the board" if visit.sign_up.share else "are nobody's but yours"
        note = el(
            "p",
            f"Keep this page's address: it is yours alone. Your completions {shared}; the host of the evening "
            "can change that.",
            class_="keep",
        )
        return page(f"{fleet}: the card of {name}", note, card_element(visit.card), styles=("/cards.css",))
    title, text = _STAGES[visit.stage]
    waits = visit.stage in (Stage.WAITING, Stage.COMING)
    return page(
        f"{fleet}: {title}",
        el(
            "main",
            el("p", fleet, class_="kind"),
            el("h1", title),
            el("p", el("strong", name), f": {text}", class_="lead", role="status"),
            el("div", el("span"), class_="wait", aria_hidden="true") if waits else None,
            el("p", "This page looks again by itself. Its address is yours alone: keep it.") if waits else None,
            class_="narrow",
        ),
        refresh_s=REFRESH_S if waits else None,
    )


_STAGES = {
    Stage.WAITING: ("Signed up", "the host of the evening has seen you, and lets you in soon."),
    Stage.COMING: ("Nearly there", "your account and your seat are being made."),
    Stage.READY: ("Nearly there", "your account and your seat are being made."),
    Stage.REFUSED: ("Not this time", "the host of the evening didn't let you in. Talk to them."),
    Stage.GONE: ("It is over", "this account was closed. Talk to the host of the evening."),
    Stage.OVER: ("It is over", "your time is over. Talk to the host of the evening."),
}


def said_page(title: str, text: str, *, home: bool = False) -> str:
    """A page that says one thing."""
    back = el("p", to("/join", "To the sign-up")) if home else None
    return page(title, el("main", el("h1", title), el("p", text, class_="lead"), back, class_="narrow"))


def leading_page(path: str) -> str:
    """A page that leads on to another one."""
    return page("tpufleet", moved(path), el("main", el("p", to(path, "On to the page")), class_="narrow"))
