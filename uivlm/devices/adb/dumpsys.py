"""Parse the output of `dumpsys`: the foreground app and the size of the display."""

import re

COMPONENT_PATTERN = re.compile(r"([A-Za-z][\w.]*)/[\w.$]+")  # package/activity
SYSTEM_WINDOWS = ("NotificationShade", "StatusBar", "Keyguard")  # windows without an activity
SYSTEM_UI = "com.android.systemui"


def focused_window_package(dump: str) -> str | None:
    """Return the package of the focused window from `dumpsys window`; None during transitions."""
    for name in re.findall(r"mCurrentFocus=Window\{\S+ (?:u\d+ )?([^}\n]*)\}", dump):
        if name.startswith(SYSTEM_WINDOWS):
            return SYSTEM_UI
        if component := COMPONENT_PATTERN.match(name):
            return component[1]
        return focused_app_package(dump)  # a menu or dialog of the app has no component of its own
    return None


def focused_app_package(dump: str) -> str | None:
    """Return the package of the app that has or is about to get the focus, from `dumpsys window`."""
    return _find_package(r"mFocusedApp=.*", dump)


def resumed_activity_package(dump: str) -> str | None:
    """Return the package of the resumed activity from `dumpsys activity activities`."""
    return _find_package(r"(?:topResumedActivity|mResumedActivity)[=:].*", dump)


def display_size(dump: str) -> tuple[int, int] | None:
    """Return width and height of the first display in its current rotation, in pixels.

    `dump`: output of `dumpsys window displays`.
    """
    match = re.search(r"\bcur=(\d+)x(\d+)", dump)
    return (int(match[1]), int(match[2])) if match else None


def _find_package(pattern: str, dump: str) -> str | None:
    for line in re.finditer(pattern, dump):
        if component := COMPONENT_PATTERN.search(line[0]):
            return component[1]
    return None
