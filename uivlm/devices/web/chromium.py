"""A Chromium process driven by DevTools: commands in, results out, for any number of isolated pages.

    with open_browser() as browser, browser.new_page() as page:
        page.goto("http://127.0.0.1:8000/")
        page.evaluate("document.title")

DevTools messages (JSON, terminated by a zero byte) go through a pipe. No port is open, and the browser exits
when the pipe closes, even if Python is killed.
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

EXECUTABLES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
RESPONSE_TIMEOUT_S = 30.0  # for one command
LOCALHOST_ONLY = ("127.0.0.1",)
# Usually never answered if its page navigates meanwhile. Other commands are refused or reach the next page.
CAPTURE_SCREENSHOT = "Page.captureScreenshot"
# The browser reads from file descriptor 3 and writes to 4: both are our socket.
PIPE_LAUNCHER = (
    "import os, sys; [os.dup2(int(sys.argv[1]), n) for n in (3, 4)]; os.execv(sys.argv[2], sys.argv[2:])"
)


class BrowserCommandError(DeviceError):
    """The browser refused a command, usually because its page is gone."""


class BrowserTimeoutError(DeviceError):
    """The browser did not answer a command: its page hangs or is gone."""


def find_chromium() -> str:
    """Return the path of an installed Chromium. Raises DeviceError if there is none."""
    for name in EXECUTABLES:
        if path := shutil.which(name):
            return path
    raise DeviceError(
        "Chromium was not found: install the Debian package `chromium-headless-shell` or `chromium`, or put "
        f"Chrome on the PATH (searched for {', '.join(EXECUTABLES)})"
    )


@contextmanager
def open_browser(
    hosts: tuple[str, ...] = LOCALHOST_ONLY, device_scale_factor: float = 1.0
) -> "Iterator[Browser]":
    """Run a headless browser that can only reach these hosts (patterns such as *.example.org).

    `device_scale_factor`: screen pixels per CSS pixel, for all pages. If it is emulated page by page,
    Chromium's input handling sometimes does not know it, and touches land elsewhere.
    """
    chromium = find_chromium()
    with tempfile.TemporaryDirectory(prefix="uivlm-web-", ignore_cleanup_errors=True) as profile:
        ours, theirs = socket.socketpair()
        launcher = [sys.executable, "-I", "-S", "-c", PIPE_LAUNCHER, str(theirs.fileno())]
        with theirs:
            process = subprocess.Popen(
                [*launcher, chromium, *_options(profile, hosts, device_scale_factor)],
                pass_fds=(theirs.fileno(),),
                env={
                    **os.environ,
                    "HOME": profile,
                },  # keeps crash reports and certificates out of the user's home
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C reaches only us, and all its processes can be killed
            )
        try:
            browser = Browser(ours, process, device_scale_factor)
            browser.call("Browser.setDownloadBehavior", behavior="deny")
            yield browser
        finally:
            ours.close()
            _terminate(process)


def _options(profile: str, hosts: tuple[str, ...], device_scale_factor: float) -> list[str]:
    rules = ", ".join(["MAP * ~NOTFOUND", *(f"EXCLUDE {host}" for host in hosts)])
    options = [
        "--headless",
        "--remote-debugging-pipe",
        f"--user-data-dir={profile}",
        f"--host-resolver-rules={rules}",
        "--no-proxy-server",  # a proxy would resolve the hosts itself
        "--no-first-run",
        "--no-default-browser-check",
        "--disable-extensions",
        "--disable-gpu",
        "--disable-dev-shm-usage",  # /dev/shm is small in containers
        "--force-color-profile=srgb",
        f"--force-device-scale-factor={device_scale_factor:g}",
        "--mute-audio",
    ]
    return [*options, "--no-sandbox"] if os.geteuid() == 0 else options  # Chromium has no sandbox for root


def _terminate(process: "subprocess.Popen[bytes]") -> None:
    """Wait for the browser, whose pipe is closed; kill it with all its processes if it does not exit."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Browser:
    """A browser at the other end of a pipe. Use it from one thread only."""

    def __init__(
        self, pipe: socket.socket, process: "subprocess.Popen[bytes]", device_scale_factor: float
    ) -> None:
        self.process, self.device_scale_factor = process, device_scale_factor
        self._pipe, self._buffer, self._last_id = pipe, bytearray(), 0
        self._crashed: set[str] = set()  # session ids

    @contextmanager
    def new_page(self) -> "Iterator[BrowserPage]":
        """Open an empty page with its own cookies and storage; close it when the block ends."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = BrowserPage(self, session)
        page.call("Page.enable")
        page.call("Inspector.enable")
        try:
            yield page
        finally:
            # Do not wait: the browser may be gone or hang.
            with suppress(DeviceError):
                self._send("Target.disposeBrowserContext", "", {"browserContextId": context})

    def call(
        self, method: str, session: str = "", timeout_s: float | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Return the result of one command.

        Raises BrowserCommandError, BrowserTimeoutError, or DeviceError if the browser is gone.
        """
        self._check_not_crashed(session)
        command_id = self._send(method, session, parameters)
        timeout_s = RESPONSE_TIMEOUT_S if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                message = self._receive(deadline)
            except TimeoutError:
                raise BrowserTimeoutError(
                    f"the browser did not answer {method} within {timeout_s:g} s: its page may hang"
                ) from None
            if message.get("id") == command_id:
                if "error" in message:
                    raise BrowserCommandError(f"the browser refused {method}: {message['error']['message']}")
                result: dict[str, Any] = message["result"]
                return result
            self._handle_event(message, session)
            if method == CAPTURE_SCREENSHOT and _is_main_frame_navigation(message, session):
                raise BrowserCommandError(f"the browser did not answer {method}: its page navigated away")

    def _send(self, method: str, session: str, parameters: dict[str, Any]) -> int:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        try:
            self._pipe.settimeout(RESPONSE_TIMEOUT_S)
            self._pipe.sendall(json.dumps(message).encode("ascii") + b"\0")
        except TimeoutError:
            raise BrowserTimeoutError(
                f"the browser did not accept {method} within {RESPONSE_TIMEOUT_S:g} s: it hangs"
            ) from None
        except OSError as error:
            raise self._browser_gone_error() from error
        return self._last_id

    def _receive(self, deadline: float) -> dict[str, Any]:
        """Return the next message. Raises TimeoutError at the deadline."""
        searched = 0
        while (end := self._buffer.find(b"\0", searched)) < 0:
            searched = len(self._buffer)
            try:
                self._pipe.settimeout(max(deadline - time.monotonic(), 0.001))
                data = self._pipe.recv(1 << 20)
            except TimeoutError:
                raise
            except OSError as error:
                raise self._browser_gone_error() from error
            if not data:
                raise self._browser_gone_error()
            self._buffer += data
        message: dict[str, Any] = json.loads(self._buffer[:end])
        del self._buffer[: end + 1]
        return message

    def _handle_event(self, message: dict[str, Any], session: str) -> None:
        """Handle a message that is not the result of a command."""
        match message:
            case {"method": "Page.javascriptDialogOpening", "sessionId": sender, "params": {"type": dialog}}:
                # A dialog blocks its page. Screenshots do not show it, so questions are answered with no.
                accept = dialog in ("alert", "beforeunload")
                self._send("Page.handleJavaScriptDialog", sender, {"accept": accept})
            case {"method": "Inspector.targetCrashed", "sessionId": sender}:
                self._crashed.add(sender)
                self._check_not_crashed(session)

    def _check_not_crashed(self, session: str) -> None:
        """Raise if the page has crashed: it would never answer."""
        if session in self._crashed:
            raise DeviceError("the page has crashed: open a new page")

    def _browser_gone_error(self) -> DeviceError:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        return DeviceError(
            f"the browser is gone (exit status {self.process.poll()}): start it again"
            + ("; if it never started, run it by hand to see why" if self._last_id < 2 else "")
        )


def _is_main_frame_navigation(message: dict[str, Any], session: str) -> bool:
    """Did the session's page, not a frame in it, navigate to another document?"""
    match message:
        case {"method": "Page.frameNavigated", "sessionId": sender, "params": {"frame": frame}}:
            return sender == session and "parentId" not in frame
    return False


class BrowserPage:
    """One page of a browser."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self._session = browser, session

    def call(self, method: str, timeout_s: float | None = None, **parameters: Any) -> dict[str, Any]:
        """Return the result of one DevTools command. Raises as Browser.call does."""
        return self.browser.call(method, self._session, timeout_s, **parameters)

    def add_init_script(self, script: str) -> None:
        """Run a script in every later document, before its own scripts."""
        self.call("Page.addScriptToEvaluateOnNewDocument", source=script)

    def goto(self, url: str) -> None:
        """Navigate to this address. Raises DeviceError if it cannot be reached."""
        error = self.call("Page.navigate", url=url).get("errorText")
        if error:
            raise DeviceError(f"the page {url} cannot be opened: {error}")

    def evaluate(self, script: str) -> Any:
        """Return the value of a JavaScript expression as JSON. A promise is awaited."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if details := result.get("exceptionDetails"):
            error = details.get("exception", {}).get("description") or details["text"]
            raise DeviceError(f"a script failed in the page: {error.splitlines()[0]}")
        return result["result"].get("value")
