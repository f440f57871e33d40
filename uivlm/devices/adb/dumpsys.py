"""Parse the output of `dumpsys window`: the foreground app, the windows that cover it, the display's size.

Apps choose the titles of their windows, and a title may hold anything, even line breaks. So a title is never
read, and a value that is reported twice with different contents is unknown: an app can add lines to the
output, but cannot remove Android's own. Formats: AOSP, DisplayContent.dump and WindowState.dump.
"""

import re
from collections.abc import Iterator

SYSTEM_UI = "com.android.systemui"
FOCUS_LINE = re.compile(r"^ *mCurrentFocus=Window\{([0-9a-f]+) ", re.MULTILINE)
FOCUSED_APP_LINE = re.compile(r"^ *mFocusedApp=(?!null)(.*)$", re.MULTILINE)
RESUMED_LINE = re.compile(r"^ *(?:topResumedActivity|mResumedActivity)[=:](.*)$", re.MULTILINE)
COMPONENT_PATTERN = re.compile(r"([A-Za-z][\w.]*)/[\w.$]+")  # package/activity
WINDOW_LINE = re.compile(r"^ *Window #\d+ Window\{([0-9a-f]+) ", re.MULTILINE)
RECTANGLE = r"\[(-?\d+),(-?\d+)\]\[(-?\d+),(-?\d+)\]"
FRAME_PATTERN = re.compile(rf"(?:\bframe|\bmFrame)={RECTANGLE}")
REGION_PATTERN = re.compile(r"touchable region=SkRegion\((.*)\)")
NOT_TOUCHABLE_FLAG = 0x10  # WindowManager.LayoutParams.FLAG_NOT_TOUCHABLE
Rectangle = tuple[int, int, int, int]  # left, top, right, bottom in pixels


def foreground_package(dump: str) -> str | None:
    """Return the package that has the focus from `dumpsys window`; "" if unclear, None if no window has it.

    The owner of the focused window and the focused app must agree, except for windows of the system's UI.
    """
    windows = set(FOCUS_LINE.findall(dump))
    if not windows:
        return None
    sections = [section for window, section in _window_sections(dump) if window in windows]
    owners = {package for section in sections for package in re.findall(r" package=([\w.]+)", section)}
    if len(windows) > 1 or len(owners) > 1:
        return ""
    if owners == {SYSTEM_UI}:
        return SYSTEM_UI
    app = focused_app_package(dump)
    return app if owners <= {app} else ""


def focused_app_package(dump: str) -> str:
    """Return the package of the app that has or is about to get the focus; "" if unknown or several."""
    return _only_package(FOCUSED_APP_LINE, dump)


def resumed_activity_package(dump: str) -> str:
    """Return the package of the resumed activity from `dumpsys activity activities`; "" if unknown."""
    return _only_package(RESUMED_LINE, dump)


def windows_above_focus(focus_dump: str, windows_dump: str) -> tuple[Rectangle, ...] | None:
    """Return where visible windows above the focused one take touches; None if that is unclear.

    `focus_dump`: output of `dumpsys window`. `windows_dump`: output of `dumpsys window windows`, which lists
    the windows from top to bottom.
    """
    focused = set(FOCUS_LINE.findall(focus_dump))
    sections = list(_window_sections(windows_dump))
    places = [i for i, (window, _) in enumerate(sections) if window in focused]
    if len(focused) != 1 or len(places) != 1:
        return None
    return tuple(
        rectangle
        for _, section in sections[: places[0]]
        if _takes_touches(section)
        for rectangle in _touchable_rectangles(section)
    )


def display_size(dump: str) -> tuple[int, int] | None:
    """Return width and height of the first display in its current rotation, in pixels.

    `dump`: output of `dumpsys window displays`.
    """
    match = re.search(r"\bcur=(\d+)x(\d+)", dump)
    return (int(match[1]), int(match[2])) if match else None


def _window_sections(dump: str) -> Iterator[tuple[str, str]]:
    """The id of each window, and the lines about it."""
    headers = list(WINDOW_LINE.finditer(dump))
    ends = [header.start() for header in headers[1:]] + [len(dump)]
    for header, end in zip(headers, ends, strict=False):
        yield header[1], dump[header.end() : end]


def _takes_touches(section: str) -> bool:
    """Is the window visible, on the first display, and touchable? If lines contradict, it is."""
    flags = re.findall(r"\bfl=([^\n}]*)", section)
    displays = re.findall(r"mDisplayId=(\d+)", section)
    return (
        ("isReadyForDisplay()=true" in section or "isVisible=true" in section)
        and (not displays or "0" in displays)
        and not (flags and all(_is_not_touchable(line) for line in flags))
    )


def _is_not_touchable(flags: str) -> bool:
    """Names since Android 9, a hexadecimal number before."""
    if match := re.match(r"#([0-9a-f]+)", flags):
        return bool(int(match[1], 16) & NOT_TOUCHABLE_FLAG)
    return "NOT_TOUCHABLE" in flags.split()


def _touchable_rectangles(section: str) -> list[Rectangle]:
    """The frame; of a keyboard, whose frame is mostly transparent, the region that takes touches."""
    regions = REGION_PATTERN.findall(section)
    if regions and set(re.findall(r"\bty=(\w+)", section)) == {"INPUT_METHOD"}:
        corners = re.findall(r"\((-?\d+),(-?\d+),(-?\d+),(-?\d+)\)", " ".join(regions))
    else:
        corners = FRAME_PATTERN.findall(section)
    return [(int(left), int(top), int(right), int(bottom)) for left, top, right, bottom in corners]


def _only_package(pattern: re.Pattern[str], dump: str) -> str:
    """The package that all matching lines name; "" if they differ, or if there is none."""
    components = [COMPONENT_PATTERN.search(line) for line in pattern.findall(dump)]
    packages = {component[1] for component in components if component}
    return packages.pop() if len(packages) == 1 else ""
