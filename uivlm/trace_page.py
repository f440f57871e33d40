"""Pages to look at: of one trace, and of a folder of traces. Both are made from the traces alone, and can be made again."""

import os
from pathlib import Path
from urllib.parse import quote

from PIL import Image

from uivlm.actions.action import Action
from uivlm.actions.language import NotAnAction
from uivlm.page import page, safe
from uivlm.picture import caption, data_url, draw_action
from uivlm.trace_read import RUN, Row, Run, read_trace

INDEX = "index.html"
COLOUR = "#e8175d"
PAGE_WIDTH = 360  # pixels of a screen on the page
PAGE_HEIGHT = 800
COLUMNS = ("goal", "by", "status", "judged", "steps", "started")


def write_page(folder: Path) -> Path:
    """The trace's own `index.html`: each screen with its tap or swipe drawn on it."""
    run = read_trace(folder)
    facts = {
        "by": run.by,
        "status": run.status,
        "message": run.message,
        "steps": len(run.rows),
        "started": run.started,
        "ended": run.ended,
        **run.facts,
    }
    told = "".join(f"<dt>{safe(name)}</dt><dd>{safe(value)}</dd>" for name, value in facts.items())
    versions = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    figures = "".join(_figure(row, run) for row in run.rows)
    body = f"<h1>{safe(run.goal)}</h1><dl>{told}</dl><main>{figures}</main><footer>{safe(versions)}</footer>"
    return _written(folder / INDEX, page(run.goal, STYLE, body))


def write_index(folder: Path) -> Path:
    """The `index.html` of a folder with traces at any depth. ValueError where there is no such folder, or where it is itself
    a trace. A trace that cannot be read has a line that says why."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}: name one with traces in it")
    if (folder / RUN).exists():
        raise ValueError(f"{folder} is itself a trace: name the folder that it lies in")
    traces = sorted(path.parent for path in folder.rglob(RUN))
    lines = "".join(_line(trace, trace.relative_to(folder).as_posix()) for trace in traces)
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    body = f"<h1>{len(traces)} traces</h1><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"
    return _written(folder / INDEX, page(f"{len(traces)} traces", INDEX_STYLE, body))


def drawn(row: Row) -> Image.Image:
    """The row's screen in its full size, with what was decided drawn on it."""
    if row.action is None or isinstance(row.action, NotAnAction):
        return Image.fromarray(row.pixels())
    return draw_action(row.pixels(), row.action, COLOUR)


def _line(trace: Path, name: str) -> str:
    try:
        run = read_trace(trace)
    except (ValueError, OSError) as error:
        return f'<tr><td>{safe(name)}</td><td colspan="{len(COLUMNS) - 1}">{safe(error)}</td></tr>'
    goal = safe(run.goal) or "no goal"
    if (trace / INDEX).is_file():
        goal = f'<a href="{quote(os.fsencode(f"{name}/{INDEX}"))}">{goal}</a>'
    status = run.status if run.ended_well or not run.message else f"{run.status}: {run.message}"
    cells = (run.by, status, run.facts.get("judged", ""), len(run.rows), run.started)
    return f"<tr><td>{goal}</td>{''.join(f'<td>{safe(cell)}</td>' for cell in cells)}</tr>"


def _figure(row: Row, run: Run) -> str:
    picture = drawn(row)
    picture.thumbnail((PAGE_WIDTH, PAGE_HEIGHT))
    words = "nothing was decided" if row.words is None else row.words
    notes = []
    if isinstance(row.action, NotAnAction):
        notes.append(row.action.reason)
    if row.proposed is not None:
        notes.append(f"instead of {_said(row.proposed)}")
    if row.by != run.by:
        notes.append(f"by a {row.by}")
    return (
        f'<figure><img src="{data_url(picture)}" alt="screen {row.t}"><figcaption><b>{row.t + 1}.</b> '
        f"<code>{safe(words)}</code> <em>{safe(', '.join(notes))}</em><small>{_numbers(row)}</small></figcaption></figure>"
    )


def _said(action: Action | NotAnAction) -> str:
    return action.words if isinstance(action, NotAnAction) else caption(action)


def _numbers(row: Row) -> str:
    """How long it took, and how sure the agent was."""
    times = {"screen": row.screen_ms, "agent": row.agent_ms, "perform": row.perform_ms}
    told = [f"{name} {ms:.0f} ms" for name, ms in times.items() if ms is not None]
    return " · ".join(told + ([] if row.confidence is None else [f"confidence {row.confidence:.2f}"]))


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path


STYLE = """
h1 { font-size: 1.3rem; white-space: pre-wrap }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem }
dt { color: #777 } dd { margin: 0; overflow-wrap: anywhere }
main { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 240px } img { width: 100%; border: 1px solid #ccc; border-radius: 8px }
code { white-space: pre-wrap; overflow-wrap: anywhere } small { display: block; color: #777 }
footer { color: #777; margin-top: 2rem }
"""
INDEX_STYLE = """
h1 { font-size: 1.3rem }
table { border-collapse: collapse } th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0 }
td { border-top: 1px solid #ccc; overflow-wrap: anywhere; white-space: pre-wrap }
"""
