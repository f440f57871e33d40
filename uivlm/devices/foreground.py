"""What `dumpsys` says of a display: its long texts in, the app in front and the display's size out."""

import re

COMPONENT = re.compile(r"([A-Za-z][\w.]*)/[\w.$]+")  # package/activity
SYSTEM_WINDOWS = ("NotificationShade", "StatusBar", "Keyguard")  # have no activity
SYSTEM = "com.android.systemui"


def focused(dump: str) -> str | None:
    """Package of the window that has the focus, by `dumpsys window`; None while none has it, as in transitions."""
    for name in re.findall(r"mCurrentFocus=Window\{\S+ (?:u\d+ )?([^}\n]*)\}", dump):
        if name.startswith(SYSTEM_WINDOWS):
            return SYSTEM
        if found := COMPONENT.match(name):
            return found[1]
        return focused_app(dump)  # a window without a component of its own: a menu, a dialog of the app
    return None


def focused_app(dump: str) -> str | None:
    """Package of the app that has the focus or is about to have it, by `dumpsys window`."""
    return _component(r"mFocusedApp=.*", dump)


def resumed(dump: str) -> str | None:
    """Package of the activity that runs in front, by `dumpsys activity activities`."""
    return _component(r"(?:topResumedActivity|mResumedActivity)[=:].*", dump)


def shown_size(dump: str) -> tuple[int, int] | None:
    """Width and height in pixels of the first display as it is turned now, by `dumpsys window displays`."""
    found = re.search(r"\bcur=(\d+)x(\d+)", dump)
    return (int(found[1]), int(found[2])) if found else None


def _component(line: str, dump: str) -> str | None:
    for found in re.finditer(line, dump):
        if component := COMPONENT.search(found[0]):
            return component[1]
    return None
