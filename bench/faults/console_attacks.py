"""Attacks on the console: damaged commands, paths, other origins, damaged traces. No 5xx, nothing is done."""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import httpx
from row import Attack

from uivlm.actions.action import Press
from uivlm.actions.decision import Decision
from uivlm.actions.gesture import Gesture
from uivlm.console.server import console_in_thread
from uivlm.console.session import Session
from uivlm.devices.sim.phone import SimPhone
from uivlm.episodes.episode import History, Screen
from uivlm.rollout.trace_writer import TraceWriter
from uivlm.safety.policy import PERMISSIVE_POLICY
from uivlm.safety.secrets import load_secrets

NUM_COMMANDS = 1000
COMMANDS = (
    {"type": "start", "goal": "open the clock", "step_mode": True},
    {"type": "touch", "screen_id": 1, "touch": [0.5, 0.5], "lift": [0.5, 0.5]},
    {"type": "type", "screen_id": 1, "text": "words"},
    {"type": "press", "screen_id": 1, "key": "back"},
    {"type": "confirm", "request_id": 1},
    {"type": "finish", "status": "complete"},
)
VALUES = ("null", "-1", "1" + "0" * 400, "1e999", "NaN", '"\\ud800"', "[]", "{}", '"x"', "true", '"\\u0000"')
PATHS = (
    "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd", "....//etc/passwd",
    "/etc/passwd", "%00", "run/../../secret", "..", ".", "a%0d%0ax", "link", "link/0", "whole/../secret",
    "whole/-1", "whole/99999999999999999999", "whole/0%2f..", "\\\\..\\\\secret",
)  # fmt: skip


class Watched:
    """A simulated phone that lists what was done to it."""

    def __init__(self) -> None:
        self.phone, self.done = SimPhone(layout=1), list[Gesture]()

    def screen(self) -> Screen:
        return self.phone.screen()

    def perform(self, gesture: Gesture) -> None:
        self.done.append(gesture)
        self.phone.perform(gesture)


class Idle:
    def reset(self) -> None:
        pass

    def act(self, history: History) -> Decision:
        return Decision(Press("home"), "press home")


@contextmanager
def console(traces: Path) -> Iterator[tuple[httpx.Client, dict[str, str], Watched]]:
    """A client, the headers of the console's own page, the phone."""
    phone = Watched()
    session = Session(Idle(), phone, PERMISSIVE_POLICY, load_secrets(PERMISSIVE_POLICY), traces)
    with console_in_thread(session) as url, closing(httpx.Client(base_url=url, timeout=60)) as client:
        match = re.search('name="token" content="([^"]+)"', client.get("/").text)
        assert match
        yield client, {"x-console-token": match[1], "content-type": "application/json"}, phone


def attacks(folder: Path) -> Iterator[Attack]:
    yield Attack(f"console: {NUM_COMMANDS} damaged commands", "no status 5xx", partial(commands, folder))
    yield Attack(f"console: {len(PATHS)} hostile paths", "404 or 422, no file", partial(paths, folder))
    yield Attack("console: other origins and hosts", "refused, nothing done", partial(origins, folder))
    yield Attack("console: damaged traces", "each listed as broken", partial(damaged_traces, folder))


def commands(folder: Path) -> tuple[str, bool]:
    draw, statuses = random.Random(11), Counter[int]()
    with console(folder / "console_commands") as (client, headers, _):
        for _ in range(NUM_COMMANDS):
            body = damage(json.dumps(draw.choice(COMMANDS)), draw)
            statuses[client.post("/commands", content=body, headers=headers).status_code] += 1
    return counts(statuses), max(statuses) < 500


def damage(body: str, draw: random.Random) -> bytes:
    """Some of these are still commands, which are answered with 204 or 409."""
    at = draw.randrange(1, len(body))
    values = list(re.finditer(r": (?=[^ ])", body))
    match draw.randrange(4):
        case 0:
            text = body[:at]
        case 1:
            text = body[:at] + draw.choice('"{}[],0\x00') + body[at:]
        case 2:
            start = draw.choice(values).end()
            text = body[:start] + draw.choice(VALUES) + re.sub(r"^[^,}]*", "", body[start:])
        case _:
            text = body[:1] + f'"type": {draw.choice(VALUES)}, ' + body[1:]
    return text.encode("utf-8", "surrogatepass")


def paths(folder: Path) -> tuple[str, bool]:
    traces = folder / "console_paths"
    write_trace(traces / "whole")
    write_trace(folder / "secret")
    (traces / "link").symlink_to(folder / "secret")
    statuses, leaks = Counter[int](), 0
    with console(traces) as (client, _, _):
        for path in PATHS:
            for place in ("/traces/", "/steps/", "/screens/"):
                status, content = get_raw(client, place + path)
                statuses[status] += 1
                leaks += any(mark in content for mark in (b"root:", b"\x89PNG", b"secret goal"))
    return f"{counts(statuses)}; {leaks} files given", not leaks and set(statuses) <= {400, 404, 405, 422}


def get_raw(client: httpx.Client, path: str) -> tuple[int, bytes]:
    """Status and content of a path that httpx would tidy up."""
    connection = HTTPConnection(client.base_url.host, client.base_url.port, timeout=30)
    with closing(connection):
        connection.putrequest("GET", path)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()


def counts(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {count}" for status, count in sorted(statuses.items()))


def origins(folder: Path) -> tuple[str, bool]:
    changes = (
        {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"}, {"x-console-token": "guess"},
        {"content-type": "text/plain"}, {"host": "evil.example"}, {"host": "127.0.0.1.evil.example"},
    )  # fmt: skip
    statuses, body = Counter[int](), json.dumps(COMMANDS[0])
    with console(folder / "console_origins") as (client, headers, phone):
        for change in changes:
            statuses[client.post("/commands", content=body, headers=headers | change).status_code] += 1
        read = client.get("/traces", headers={"host": "evil.example"}).status_code
        num_traces = len(client.get("/traces").json()["traces"])
    refused = set(statuses) <= {400, 403, 415} and read == 400
    return (
        f"{counts(statuses)}; {len(phone.done)} gestures, {num_traces} runs",
        refused and not phone.done and not num_traces,
    )


def damaged_traces(folder: Path) -> tuple[str, bool]:
    traces = folder / "console_traces"
    rows = {
        "dotdot": ('"screen": "', '"screen": "../'),
        "nan": ('"height": ', '"height": NaN, "x": '),
        "huge": ('"t": 0', '"t": 1' + "0" * 400),
        "twice": ('"t": 0', '"t": 0, "t": 0'),
        "deep": ('"text": ', '"text": ' + "[" * 5000),
        "torn": ('"text": ', ""),
    }
    for name, (old, new) in rows.items():
        write_trace(traces / name)
        file = traces / name / "trace.jsonl"
        file.write_text(file.read_text().replace(old, new, 1))
    write_trace(traces / "fifo")
    screen = next((traces / "fifo").glob("*.png"))
    screen.unlink()
    os.mkfifo(screen)
    write_trace(traces / "whole")
    with console(traces) as (client, _, _):
        answer = client.get("/traces")
        listed = {trace["name"]: "error" in trace for trace in answer.json()["traces"]}
    broken = sum(listed.values())
    expected = {name: name != "whole" for name in (*rows, "fifo", "whole")}
    return f"{broken} of {len(rows) + 1} broken, {len(listed) - broken} whole", listed == expected


def write_trace(folder: Path) -> None:
    """A run of one step."""
    screen, decision = SimPhone(layout=1).screen(), Decision(Press("home"), "press home", 0.5)
    writer = TraceWriter(folder, "secret goal" if folder.name == "secret" else "goal")
    writer.on_screen(0, screen, 1.0)
    writer.on_decision(0, decision, 1.0)
    writer.on_action(0, None, 1.0)
    writer.on_end("complete", "complete after 1 step")
