"""Android's services on a device of ours: what dumpsys, uiautomator, pm, am start, monkey, wm and getprop say of it.

An app of the simulated phone is the package `sim.` and its name in small letters.
"""

import re
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable
from xml.etree import ElementTree

from uivlm.actions.gesture import Gesture
from uivlm.devices.sim.answer import Answer, failed, told
from uivlm.episode import Element, Screen

Service = Callable[["Glass", tuple[str, ...]], Answer]
NO_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
PROPERTIES = {
    "ro.build.version.release": "14",
    "ro.build.version.sdk": "34",
    "ro.product.device": "simulated",
    "ro.product.manufacturer": "uivlm",
    "ro.product.model": "Simulated phone",
    "sys.boot_completed": "1",
}


class Glass(Protocol):
    """A device whose size in pixels is known."""

    width: int
    height: int

    def screen(self) -> Screen: ...

    def perform(self, gesture: Gesture) -> None: ...


@runtime_checkable
class Apps(Protocol):
    """A device that tells its apps by name and starts them."""

    @property
    def app(self) -> str:
        """The one in front."""

    @property
    def apps(self) -> Sequence[str]:
        """Those that can be started."""

    def launch(self, app: str) -> None: ...


def _packages(device: Glass) -> dict[str, str]:
    """Package -> app."""
    return {f"sim.{app.lower()}": app for app in device.apps} if isinstance(device, Apps) else {}


def _front(device: Glass) -> str:
    """The component in front. A device that does not tell its apps is one app."""
    return f"sim.{device.app.lower()}/.Main" if isinstance(device, Apps) else "sim/.Main"


def dumpsys(device: Glass, words: tuple[str, ...]) -> Answer:
    width, height, front = device.width, device.height, _front(device)
    record = f"ActivityRecord{{52 u0 {front} t7}}"
    turned = int(width > height)
    match words:
        case ("window",):
            return told(
                f"  mCurrentFocus=Window{{51 u0 {front}}}\n  mFocusedApp={record}\n  mCurrentRotation=ROTATION_{90 * turned}"
            )
        case ("window", "displays"):
            size = f"{width}x{height}"
            return told(f"  Display: mDisplayId=0\n    init={size} 420dpi cur={size} app={size}")
        case ("window", "policy"):
            return told("    KeyguardServiceDelegate\n      showing=false\n      inputRestricted=false")
        case ("activity", "activities"):
            return told(f"  topResumedActivity={record}\n  mResumedActivity: {record}")
        case ("power",):
            return told("  mWakefulness=Awake")
        case ("input",):
            return told(f"  SurfaceWidth: {width}px\n  SurfaceOrientation: {turned}")
        case ("input_method",):
            return told("  mInputShown=false")
    return failed(f"Can't find service: {' '.join(words)}", 0)


def uiautomator(device: Glass, words: tuple[str, ...]) -> Answer:
    if words != ("dump", "/dev/tty"):
        raise ValueError(f"uiautomator {' '.join(words)}: only 'dump /dev/tty', this phone has no files")
    width, height = device.width, device.height
    tree = ElementTree.Element("hierarchy", rotation=str(int(width > height)))
    bounds = f"[0,0][{width},{height}]"
    root = ElementTree.SubElement(tree, "node", _is("android.widget.FrameLayout") | {"bounds": bounds})
    for element in device.screen().elements:
        ElementTree.SubElement(root, "node", _node(element) | {"bounds": _bounds(element, width, height)})
    xml = ElementTree.tostring(tree, "unicode")
    return told(
        f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>{xml}UI hierchary dumped to: /dev/tty"
    )


def _node(element: Element) -> dict[str, str]:
    """A sign has no text but a description, as Android asks of apps."""
    if element.kind.startswith("ICON_"):
        name = element.kind.removeprefix("ICON_").replace("_", " ").lower()
        return _is("android.widget.ImageView", element.text, name)
    return _is("android.widget.TextView", element.text)


def _is(kind: str, text: str = "", description: str = "") -> dict[str, str]:
    return {"class": kind, "text": NO_XML.sub(".", text), "content-desc": description}


def _bounds(element: Element, width: int, height: int) -> str:
    right, bottom = (element.x + element.width) * width, (element.y + element.height) * height
    return f"[{round(element.x * width)},{round(element.y * height)}][{round(right)},{round(bottom)}]"


def monkey(device: Glass, words: tuple[str, ...]) -> Answer:
    match words:
        case ("-p", package, "-c", "android.intent.category.LAUNCHER", "1"):
            if _launch(device, package):
                return told("Events injected: 1")
            return failed("** No activities found to run, monkey aborted.", 252)
    raise ValueError("monkey: say -p PACKAGE -c android.intent.category.LAUNCHER 1")


def cmd(device: Glass, words: tuple[str, ...]) -> Answer:
    match words:
        case ("package", "resolve-activity", "--brief", package):
            if package not in _packages(device):
                return told("No activity found")
            return told(f"priority=0 preferredOrder=0 match=0x108000 isDefault=false\n{package}/.Main")
    raise ValueError("cmd: only 'package resolve-activity --brief PACKAGE' is known")


def am_start(device: Glass, words: tuple[str, ...]) -> Answer:
    match words:
        case ("-n", component) | ("-W", "-n", component):
            package, _, activity = component.partition("/")
            if activity == ".Main" and _launch(device, package):
                return told(f"Starting: Intent {{ cmp={component} }}")
            return failed(f"Error type 3\nError: Activity class {{{component}}} does not exist.", 1)
    raise ValueError("am start: say -n PACKAGE/ACTIVITY")


def pm(device: Glass, words: tuple[str, ...]) -> Answer:
    match words:
        case ("list", "packages"):
            return told("\n".join(f"package:{package}" for package in sorted(_packages(device))))
    raise ValueError(f"pm {' '.join(words)}: only 'list packages' is known")


def wm(device: Glass, words: tuple[str, ...]) -> Answer:
    match words:
        case ("size",):
            return told(f"Physical size: {device.width}x{device.height}")
        case ("density",):
            return told("Physical density: 420")
    raise ValueError(f"wm {' '.join(words)}: only 'size' and 'density' can be asked")


def getprop(_: Glass, words: tuple[str, ...]) -> Answer:
    match words:
        case ():
            return told("\n".join(f"[{name}]: [{value}]" for name, value in PROPERTIES.items()))
        case (name, *default):
            return told(PROPERTIES.get(name, default[0] if default else ""))
    raise AssertionError("every tuple is matched above")


def _launch(device: Glass, package: str) -> bool:
    app = _packages(device).get(package)
    if app is None or not isinstance(device, Apps):
        return False
    device.launch(app)
    return True


SERVICES: dict[str, Service] = {
    "dumpsys": dumpsys,
    "uiautomator": uiautomator,
    "monkey": monkey,
    "cmd": cmd,
    "pm": pm,
    "wm": wm,
    "getprop": getprop,
}
