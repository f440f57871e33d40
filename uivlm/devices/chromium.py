"""A Chromium of our own, through DevTools: commands in, answers out, for any number of pages that know nothing of each other.

    with browser() as chromium, chromium.page() as page:
        page.open("http://127.0.0.1:8000/")
        page.evaluate("document.title")

It is spoken to through a pipe (JSON, a zero byte after each message): nothing listens on a port, and a browser whose
pipe closes ends by itself, so that none is left behind even where Python is killed.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from uivlm.devices.device import DeviceError

PROGRAMS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
TIMEOUT_S = 30.0  # for one answer
ONLY_HERE = ("127.0.0.1",)
# Mostly never answered where its page is left meanwhile, unlike other commands: those are refused, or reach the next page.
CAPTURE = "Page.captureScreenshot"
# The browser reads from file 3 and writes to file 4: both are our socket.
PIPES = "import os, sys; [os.dup2(int(sys.argv[1]), n) for n in (3, 4)]; os.execv(sys.argv[2], sys.argv[2:])"


class RefusedError(DeviceError):
    """The browser is there, and will not do this: mostly, the page is not one of now any more."""


class NoAnswerError(DeviceError):
    """The browser is there, and says nothing to this: its page hangs, or has gone."""


def program() -> str:
    """A Chromium of this machine. Raises DeviceError where there is none."""
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise DeviceError(
        "no Chromium here: install the Debian package `chromium-headless-shell` or `chromium`, or put a Chrome "
        f"on the PATH (looked for {', '.join(PROGRAMS)})"
    )


@contextmanager
def browser(hosts: tuple[str, ...] = ONLY_HERE, density: float = 1.0) -> "Iterator[Browser]":
    """A browser without a window that reaches these hosts alone (patterns such as *.example.org); it ends with the block.

    `density`: pixels of a screen for each of CSS. All its pages share it: one that is emulated page by page is at times
    not known to what takes touches in, which then land elsewhere.
    """
    chromium = program()
    with tempfile.TemporaryDirectory(prefix="uivlm-web-", ignore_cleanup_errors=True) as profile:
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    "-c",
                    PIPES,
                    str(theirs.fileno()),
                    chromium,
                    *_options(profile, hosts, density),
                ],
                pass_fds=(theirs.fileno(),),
                env={
                    **os.environ,
                    "HOME": profile,
                },  # crash reports and certificates are not the user's business
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us, and the whole of it can be ended
            )
        try:
            one = Browser(ours, process, density)
            one.call("Browser.setDownloadBehavior", behavior="deny")
            yield one
        finally:
            ours.close()
            _end(process)


def _options(profile: str, hosts: tuple[str, ...], density: float) -> list[str]:
    rules = ", ".join(["MAP * ~NOTFOUND", *(f"EXCLUDE {host}" for host in hosts)])
    options = [
        "--headless",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        f"--host-resolver-rules={rules}",
        "--no-proxy-server",  # which would look up the hosts itself
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-extensions",
        "--disable-gpu",
        "--disable-dev-shm-usage",  # which is small in containers
        "--force-color-profile=srgb",
        f"--force-device-scale-factor={density:g}",
        "--mute-audio",
    ]
    return [*options, "--no-sandbox"] if os.geteuid() == 0 else options  # Chromium has none for root


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Its pipe is closed: it ends by itself, or it is ended, with all that it started."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Browser:
    """A browser at the other end of a pipe. For one thread."""

    def __init__(self, pipe: socket.socket, process: "subprocess.Popen[bytes]", density: float) -> None:
        self.process, self.density = process, density
        self._pipe, self._read, self._number = pipe, bytearray(), 0
        self._crashed: set[str] = set()  # sessions

    @contextmanager
    def page(self) -> "Iterator[Page]":
        """A new empty page with cookies and storage of its own; it closes with the block."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.call("Page.enable")
        page.call("Inspector.enable")
        try:
            yield page
        finally:
            # A browser that is gone has no page to close, and one that hangs is not waited for.
            with suppress(DeviceError):
                self._send("Target.disposeBrowserContext", "", {"browserContextId": context})

    def call(
        self, method: str, session: str = "", within_s: float | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """The answer to one command. Raises RefusedError, NoAnswerError, or DeviceError where the browser has gone."""
        self._check_lives(session)
        number = self._send(method, session, parameters)
        limit_s = TIMEOUT_S if within_s is None else within_s
        until = time.monotonic() + limit_s
        while True:
            try:
                message = self._receive(until)
            except TimeoutError:
                raise NoAnswerError(
                    f"the browser had no answer to {method} within {limit_s:g} s: its page may hang"
                ) from None
            if message.get("id") == number:
                if "error" in message:
                    raise RefusedError(f"the browser refuses {method}: {message['error']['message']}")
                answer: dict[str, Any] = message["result"]
                return answer
            self._heard(message, session)
            if method == CAPTURE and _left(message, session):
                raise RefusedError(f"the browser has no answer to {method}: its page was left for another")

    def _send(self, method: str, session: str, parameters: dict[str, Any]) -> int:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        try:
            self._pipe.settimeout(TIMEOUT_S)
            self._pipe.sendall(json.dumps(message).encode("ascii") + b"\0")
        except TimeoutError:
            raise NoAnswerError(
                f"the browser did not take {method} within {TIMEOUT_S:g} s: it hangs"
            ) from None
        except OSError as error:
            raise self._gone() from error
        return self._number

    def _receive(self, until: float) -> dict[str, Any]:
        """The next message. Raises TimeoutError."""
        searched = 0
        while (end := self._read.find(b"\0", searched)) < 0:
            searched = len(self._read)
            try:
                self._pipe.settimeout(max(until - time.monotonic(), 0.001))
                data = self._pipe.recv(1 << 20)
            except TimeoutError:
                raise
            except OSError as error:
                raise self._gone() from error
            if not data:
                raise self._gone()
            self._read += data
        message: dict[str, Any] = json.loads(self._read[:end])
        del self._read[: end + 1]
        return message

    def _heard(self, message: dict[str, Any], session: str) -> None:
        """What the browser says by itself."""
        match message:
            case {"method": "Page.javascriptDialogOpening", "sessionId": where, "params": {"type": kind}}:
                # It stops its page, and stands on no screenshot: nothing is agreed to that nobody saw.
                self._send(
                    "Page.handleJavaScriptDialog", where, {"accept": kind in ("alert", "beforeunload")}
                )
            case {"method": "Inspector.targetCrashed", "sessionId": where}:
                self._crashed.add(where)
                self._check_lives(session)

    def _check_lives(self, session: str) -> None:
        """A crashed page answers nothing."""
        if session in self._crashed:
            raise DeviceError("the page has crashed: open it on a new one")

    def _gone(self) -> DeviceError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        return DeviceError(
            f"the browser is gone (exit status {self.process.poll()}): start it again"
            + ("; or it never started: does it run at all here?" if self._number < 2 else "")
        )


def _left(message: dict[str, Any], session: str) -> bool:
    """Is this the word that the session's page, and not a frame in it, shows another document?"""
    match message:
        case {"method": "Page.frameNavigated", "sessionId": where, "params": {"frame": frame}}:
            return where == session and "parentId" not in frame
    return False


class Page:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self._session = browser, session

    def call(self, method: str, within_s: float | None = None, **parameters: Any) -> dict[str, Any]:
        """The answer to one of DevTools' commands. Raises as Browser.call."""
        return self.browser.call(method, self._session, within_s, **parameters)

    def begin_with(self, script: str) -> None:
        """From the next document on, this is run before anything of its own."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def open(self, url: str) -> None:
        """Begin to show this address. Raises DeviceError where it cannot be reached."""
        failed = self.call("Page.navigate", url=url).get("errorText")
        if failed:
            raise DeviceError(f"the page {url} cannot be opened: {failed}")

    def evaluate(self, script: str) -> Any:
        """What a JavaScript expression is worth, as JSON's values; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if told := answer.get("exceptionDetails"):
            why = told.get("exception", {}).get("description") or told["text"]
            raise DeviceError(f"a script failed in the page: {why.splitlines()[0]}")
        return answer["result"].get("value")
