"""A page to look at: in a title, style rules and a body of HTML, out the text of a file that asks nothing of a network."""

import html
import re


def page(title: str, style: str, body: str) -> str:
    """`title` is any text, `style` and `body` are ours."""
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<title>{safe(title)}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; color: #222 }}
{style.strip()}
</style>
{body.strip()}
</html>
"""


def safe(text: object) -> str:
    """Text as it may stand in HTML: escaped, control characters as codes."""
    return html.escape(
        re.sub(r"[^\S\n ]|[\x00-\x08\x0b-\x1f\x7f]", lambda mark: f"\\x{ord(mark[0]):02x}", str(text))
    )
