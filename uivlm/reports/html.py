"""Renders HTML pages from the templates of this room: one look, every value escaped, no network access.

In: a template's name and its values. Out: the text of the page. Templates extend `base.html`.
"""

import html
import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def render(template: str, **values: object) -> str:
    """The page of `templates/<template>.html`. Every value is escaped unless it is `Markup` (our own SVG)."""
    return _environment().get_template(f"{template}.html").render(**values)


def escape(text: object) -> Markup:
    """The text as HTML, with control characters as codes."""
    visible = re.sub(r"[^\S\n ]|[\x00-\x08\x0b-\x1f\x7f]", lambda match: f"\\x{ord(match[0]):02x}", str(text))
    return Markup(html.escape(visible))


@cache
def _environment() -> Environment:
    """Autoescape is on. A value that a template uses and the caller did not pass is an error."""
    return Environment(
        loader=PackageLoader("uivlm.reports"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_finalize,
    )  # fmt: skip


def _finalize(value: object) -> object:
    """Show control characters of foreign text as codes."""
    return escape(value) if isinstance(value, str) and not isinstance(value, Markup) else value
