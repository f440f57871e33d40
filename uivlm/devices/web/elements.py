"""What a page shows, as elements: a script that runs in the page, and the elements of its result.

The script looks into open shadow roots and frames of the same origin. What no script can read (a canvas, a
frame of another origin, a plugin) is an element of the type OPAQUE_WINDOW.
"""

from typing import Any

from uivlm.episodes.episode import Element

# Shadow roots that a page's scripts attach as closed are open, so that they can be read.
OPEN_SHADOW_ROOTS_SCRIPT = """{
  const attach = Element.prototype.attachShadow;
  Element.prototype.attachShadow = function (init) { return attach.call(this, { ...init, mode: "open" }) };
}"""

# Does typed text go to the page or a frame of its origin? Others may have any host.
FOCUS_IS_OURS_SCRIPT = """(() => {
  let node = document.activeElement, inner;
  while (inner = node?.shadowRoot?.activeElement ?? node?.contentDocument?.activeElement) node = inner;
  return !node?.matches("iframe, frame, object, embed");
})()"""

# Returns {area, elements}: the visible part of the layout and
# [[top, left, height, width, text, type, clickable], ...], all in CSS pixels of the page. In the script, a
# `frame` is a document on the page: its origin, zoom and visible part.
ELEMENTS_SCRIPT = r"""(() => {
  const CONTROLS = "a, button, input, select, textarea, summary, label, img, svg,"
    + " [role], [onclick], [contenteditable]";
  const CLICKABLE = "a[href], button, input, select, textarea, summary, label, [onclick], [contenteditable],"
    + ["button", "link", "menuitem", "tab", "checkbox", "radio", "switch", "option"].map(r => `[role=${r}]`);
  const OPAQUE = "canvas, iframe, frame, object, embed", LEGIBLE_PX = 8;
  const QUARTERS = [[0.5, 0.5], [0.25, 0.25], [0.25, 0.75], [0.75, 0.25], [0.75, 0.75]];
  // In the property `content`: functions (images, counters) and strings.
  const CSS_TOKEN = /\w+\((?:"(?:[^"\\]|\\.)*"|[^")])*\)|"(?:[^"\\]|\\.)*"/g;
  const line = text => (text || "").replace(/\s+/g, " ").trim();
  const distinct = texts => [...new Set(texts.map(line).filter(Boolean))].join(" ");
  const styleOf = (node, pseudo) => node.ownerDocument.defaultView.getComputedStyle(node, pseudo);
  const parentOf = node => node.assignedSlot ?? node.parentNode ?? node.host;  // in the flat tree
  const contains = (outer, node) => {
    while (node && node !== outer) node = parentOf(node);
    return Boolean(node);
  };
  const cssText = node => ["::before", "::after"].map(pseudo =>
    (styleOf(node, pseudo).content.match(CSS_TOKEN) || [])
      .filter(token => token.startsWith('"') && /[\p{L}\p{N}]/u.test(token))  // icons have neither
      .map(token => token.slice(1, -1).replace(/\\(.)/g, "$1")).join(""));
  const ownText = node =>
    [...node.childNodes].filter(child => child.nodeType === 3).map(child => child.data).join(" ");
  const fieldText = node => {
    if (node.matches("input[type=password]")) return node.placeholder;
    if (node.matches("select")) return node.selectedOptions[0]?.text;
    if (node.matches("input[type=checkbox], input[type=radio]")) return "";
    if (node.matches("input[type=submit]:not([value])")) return "Submit";
    return node.value || node.alt || node.placeholder;
  };
  const spelled = text => {  // "P a y": letters in blocks of their own are a word
    const words = line(text).split(" ");
    return words.length > 1 && words.every(word => word.length <= 2) ? words.join("") : "";
  };
  const controlText = node => {
    const shown = node.matches("input, select, textarea") ? fieldText(node) : node.alt || node.innerText;
    return distinct([node.getAttribute("aria-label"), shown, spelled(shown)])
      || line(node.getAttribute("title"));
  };
  const isFront = (node, frame, x, y) => {
    const [localX, localY] = [(x - frame.left) / frame.zoom, (y - frame.top) / frame.zoom];
    let front = node.ownerDocument.elementFromPoint(localX, localY);
    while (front?.shadowRoot) {
      const inner = front.shadowRoot.elementFromPoint(localX, localY);
      if (inner?.getRootNode() !== front.shadowRoot) break;
      front = inner;
    }
    return front && (contains(node, front) || contains(front, node))
      && (!frame.owner || isFront(frame.owner, frame.parent, x, y));
  };
  const boxOf = (node, frame) => {  // on the page
    const box = node.getBoundingClientRect(), { top, left, zoom } = frame;
    return { top: top + box.top * zoom, left: left + box.left * zoom,
      bottom: top + box.bottom * zoom, right: left + box.right * zoom };
  };
  const overlap = (box, clip) => ({
    top: Math.max(box.top, clip.top), left: Math.max(box.left, clip.left),
    bottom: Math.min(box.bottom, clip.bottom), right: Math.min(box.right, clip.right),
  });
  const frameOf = (node, frame, clip) => {
    const box = boxOf(node, frame), style = styleOf(node), zoom = (box.right - box.left) / node.offsetWidth;
    const top = box.top + (node.clientTop + parseFloat(style.paddingTop)) * zoom;
    const left = box.left + (node.clientLeft + parseFloat(style.paddingLeft)) * zoom;
    return { owner: node, parent: frame, zoom, top, left, clip };
  };
  const elements = [];
  const add = (node, frame) => {
    if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return;
    const box = overlap(boxOf(node, frame), frame.clip);
    const height = box.bottom - box.top, width = box.right - box.left;
    if (height < 1 || width < 1) return;
    if (node.contentDocument) return visit(node.contentDocument, frameOf(node, frame, box));
    // A custom element without visible content may have a closed shadow root that the HTML declares.
    const isHollow = node.localName.includes("-") && !node.shadowRoot && !node.firstElementChild
      && !line(node.textContent);
    const opaque = isHollow || node.matches(OPAQUE);
    if (opaque && Math.min(height, width) < LEGIBLE_PX) return;
    const style = styleOf(node), parent = node.parentElement;
    const pointer = style.cursor === "pointer" && !(parent && styleOf(parent).cursor === "pointer");
    const control = node.matches(CONTROLS), clickable = pointer || node.matches(CLICKABLE);
    const text = opaque ? "" : distinct([control ? controlText(node) : ownText(node), ...cssText(node)]);
    const picture = style.backgroundImage.includes("url(") && !node.matches("html, body");
    if (!(opaque || control || clickable || picture || text)) return;
    if (style.pointerEvents !== "none" && !QUARTERS.some(([y, x]) =>
      isFront(node, frame, box.left + x * width, box.top + y * height))) return;
    const type = opaque ? "OPAQUE_WINDOW" : text ? "TEXT"
      : "ICON_" + (node.matches("input") ? node.type : node.tagName).toUpperCase();
    elements.push([box.top, box.left, height, width, text, type, clickable || null]);
  };
  const visit = (root, frame) => {
    for (const node of root.querySelectorAll("*")) {
      add(node, frame);
      if (node.shadowRoot) visit(node.shadowRoot, frame);
    }
  };
  const view = window.visualViewport;
  const area = { top: view.offsetTop, left: view.offsetLeft, height: view.height, width: view.width };
  const clip = { ...area, bottom: area.top + area.height, right: area.left + area.width };
  visit(document, { top: 0, left: 0, zoom: 1, clip });
  return { area, elements };
})()"""


def to_elements(result: Any) -> tuple[Element, ...]:
    """The elements of the script's result, after one for the page itself."""
    area = result["area"]
    height, width = area["height"], area["width"]
    page = Element(0.0, 0.0, 1.0, 1.0, "", "PAGE", clickable=False)
    return page, *(
        Element((y - area["top"]) / height, (x - area["left"]) / width, h / height, w / width, *rest)
        for y, x, h, w, *rest in result["elements"]
    )
