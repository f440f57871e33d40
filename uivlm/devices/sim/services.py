"""Android's services on one of our devices: dumpsys, uiautomator, pm, am start, monkey, wm and getprop.

The package of an app of the simulated phone is `sim.` and its name in lower case.
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable
from xml.etree import ElementTree

from uivlm.actions.gesture import Gesture
from uivlm.devices.sim.canvas import Box
from uivlm.devices.sim.shell_parser import CommandResult, error_result, success_result
from uivlm.episodes.episode import Element, Screen

ShellService = Callable[["SizedDevice", tuple[str, ...]], CommandResult]
INVALID_XML_CHARS = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PROPERTIES = {
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
    "ro.product.device": "simulated",
    "ro.product.manufacturer": "uivlm",
    "ro.product.model": "Simulated phone",
    "sys.boot_completed": "1",
}


class SizedDevice(Protocol):
    """A device with a known size in pixels."""

    width: int
    height: int

    def screen(self) -> Screen: ...

    def perform(self, gesture: Gesture) -> None: ...


@runtime_checkable
class AppLauncher(Protocol):
    """A device that lists its apps and starts them."""

    @property
    def app(self) -> str:
        """The foreground app."""

    @property
    def apps(self) -> Sequence[str]:
        """All apps that can be started."""

    def launch(self, app: str) -> None: ...


@runtime_checkable
class TouchDispatcher(Protocol):
    """A device that says which boxes react to a touch."""

    @property
    def touch_boxes(self) -> Sequence[Box]:
        """Later ones are on top."""


def _packages(device: SizedDevice) -> dict[str, str]:
    """Return package -> app."""
    return {f"sim.{app.lower()}": app for app in device.apps} if isinstance(device, AppLauncher) else {}


def _foreground_component(device: SizedDevice) -> str:
    """Return the foreground component. A device that does not list its apps counts as one app."""
    return f"sim.{device.app.lower()}/.Main" if isinstance(device, AppLauncher) else "sim/.Main"


def dumpsys(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    width, height, front = device.width, device.height, _foreground_component(device)
    record = f"ActivityRecord{{52 u0 {front} t7}}"
    rotated = int(width > height)
    windows = f"WINDOW MANAGER WINDOWS (dumpsys window windows)\n{_window(device, front)}"
    match args:
        case ("window",):
            focus = f"  mCurrentFocus=Window{{51 u0 {front}}}\n  mFocusedApp={record}\n"
            return success_result(f"{windows}{focus}  mCurrentRotation=ROTATION_{90 * rotated}")
        case ("window", "windows"):
            return success_result(windows)
        case ("window", "displays"):
            size = f"{width}x{height}"
            return success_result(f"  Display: mDisplayId=0\n    init={size} 420dpi cur={size} app={size}")
        case ("window", "policy"):
            return success_result(
                "    KeyguardServiceDelegate\n      showing=false\n      inputRestricted=false"
            )
        case ("activity", "activities"):
            return success_result(f"  topResumedActivity={record}\n  mResumedActivity: {record}")
        case ("power",):
            return success_result("  mWakefulness=Awake")
        case ("input",):
            return success_result(f"  SurfaceWidth: {width}px\n  SurfaceOrientation: {rotated}")
        case ("input_method",):
            return success_result("  mInputShown=false")
    return error_result(f"Can't find service: {' '.join(args)}", 0)


def _window(device: SizedDevice, component: str) -> str:
    """The lines of Android about the one window of this phone."""
    package = component.partition("/")[0]
    return (
        f"  Window #0 Window{{51 u0 {component}}}:\n"
        f"    mDisplayId=0\n    mOwnerUid=10051 package={package} appop=NONE\n"
        "    mAttrs={(0,0)(fillxfill) ty=BASE_APPLICATION\n      fl=LAYOUT_IN_SCREEN SPLIT_TOUCH}\n"
        "    mHasSurface=true isReadyForDisplay()=true\n"
        f"    Frames: frame=[0,0][{device.width},{device.height}]\n    isVisible=true\n"
    )


def uiautomator(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    if args != ("dump", "/dev/tty"):
        raise ValueError(f"uiautomator {' '.join(args)}: expected 'dump /dev/tty'; this phone has no files")
    width, height = device.width, device.height
    tree = ElementTree.Element("hierarchy", rotation=str(int(width > height)))
    bounds = {"bounds": f"[0,0][{width},{height}]"}
    root = ElementTree.SubElement(
        tree, "node", _node_attributes("android.widget.FrameLayout", clickable=False) | bounds
    )
    boxes = device.touch_boxes if isinstance(device, TouchDispatcher) else ()
    targets = [(box, _add_target(root, box, width, height)) for box in boxes]
    for element in device.screen().elements:
        y, x = element.y + element.height / 2, element.x + element.width / 2
        parent = next((node for box, node in reversed(targets) if box.contains(y, x)), root)
        node = _node(element) | {"bounds": _bounds(element, width, height)}
        ElementTree.SubElement(parent, "node", node)
    xml = ElementTree.tostring(tree, "unicode")
    return success_result(
        f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>{xml}UI hierchary dumped to: /dev/tty"
    )


def _add_target(root: ElementTree.Element, box: Box, width: int, height: int) -> ElementTree.Element:
    """A clickable node without text of its own, as the rows and buttons of most apps."""
    element = Element(box.y, box.x, box.height, box.width)
    node = _node_attributes("android.view.ViewGroup", clickable=True)
    return ElementTree.SubElement(root, "node", node | {"bounds": _bounds(element, width, height)})


def _node(element: Element) -> dict[str, str]:
    """An icon has a description instead of text, as Android requires of apps."""
    if element.ui_type.startswith("ICON_"):
        name = element.ui_type.removeprefix("ICON_").replace("_", " ").lower()
        return _node_attributes("android.widget.ImageView", element.text, name, bool(element.clickable))
    return _node_attributes("android.widget.TextView", element.text, clickable=bool(element.clickable))


def _node_attributes(
    widget_class: str, text: str = "", description: str = "", clickable: bool = False
) -> dict[str, str]:
    return {
        "class": widget_class,
        "text": INVALID_XML_CHARS.sub(".", text),
        "content-desc": description,
        "clickable": str(clickable).lower(),
        "long-clickable": "false",
    }


def _bounds(element: Element, width: int, height: int) -> str:
    right, bottom = (element.x + element.width) * width, (element.y + element.height) * height
    return f"[{round(element.x * width)},{round(element.y * height)}][{round(right)},{round(bottom)}]"


def monkey(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    match args:
        case ("-p", package, "-c", "android.intent.category.LAUNCHER", "1"):
            if _launch(device, package):
                return success_result("Events injected: 1")
            return error_result("** No activities found to run, monkey aborted.", 252)
    raise ValueError("monkey: expected -p PACKAGE -c android.intent.category.LAUNCHER 1")


def cmd(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    match args:
        case ("package", "resolve-activity", "--brief", package):
            if package not in _packages(device):
                return success_result("No activity found")
            return success_result(
                f"priority=0 preferredOrder=0 match=0x108000 isDefault=false\n{package}/.Main"
            )
    raise ValueError("cmd: expected 'package resolve-activity --brief PACKAGE'")


def am_start(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    match args:
        case ("-n", component) | ("-W", "-n", component):
            package, _, activity = component.partition("/")
            if activity == ".Main" and _launch(device, package):
                return success_result(f"Starting: Intent {{ cmp={component} }}")
            return error_result(f"Error type 3\nError: Activity class {{{component}}} does not exist.", 1)
    raise ValueError("am start: expected -n PACKAGE/ACTIVITY")


def pm(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    match args:
        case ("list", "packages"):
            return success_result("\n".join(f"package:{package}" for package in sorted(_packages(device))))
    raise ValueError(f"pm {' '.join(args)}: expected 'list packages'")


def wm(device: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    match args:
        case ("size",):
            return success_result(f"Physical size: {device.width}x{device.height}")
        case ("density",):
            return success_result("Physical density: 420")
    raise ValueError(f"wm {' '.join(args)}: expected 'size' or 'density'")


def getprop(_: SizedDevice, args: tuple[str, ...]) -> CommandResult:
    match args:
        case ():
            return success_result("\n".join(f"[{name}]: [{value}]" for name, value in PROPERTIES.items()))
        case (name, *default):
            return success_result(PROPERTIES.get(name, default[0] if default else ""))
    raise AssertionError("every tuple is matched above")


def _launch(device: SizedDevice, package: str) -> bool:
    app = _packages(device).get(package)
    if app is None or not isinstance(device, AppLauncher):
        return False
    device.launch(app)
    return True


SERVICES: dict[str, ShellService] = {
    "dumpsys": dumpsys,
    "uiautomator": uiautomator,
    "monkey": monkey,
    "cmd": cmd,
    "pm": pm,
    "wm": wm,
    "getprop": getprop,
}
