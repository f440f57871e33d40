// Input on the pad over a screen by mouse, touch or keys. Output: touch and lift points as fractions [y, x].

import { draw, make } from "/draw.js";

const STEP = 0.02, LARGE_STEP = 0.1; // fraction of the screen, per arrow key press

/** `size()` returns the screen's size, or null while it cannot be touched; `done(touch, lift)` receives each gesture. */
export function pointing(pad, svg, size, done) {
  let from = null; // where a touch, or a swipe by keys, begins
  let cross = [0.5, 0.5];

  const place = event => {
    const box = pad.getBoundingClientRect();
    const within = (value, all) => Math.min(Math.max(value / all, 0), 1);
    return [within(event.clientY - box.top, box.height), within(event.clientX - box.left, box.width)];
  };
  const preview = to => {
    const { height, width } = size();
    const pixel = ([y, x]) => [x * width, y * height];
    draw(svg, { type: "touch", points: [pixel(from ?? to), pixel(to)] }, { height, width }, true);
  };
  const drop = () => {
    from = null;
    if (size()) draw(svg, null, size());
  };

  pad.addEventListener("pointerdown", event => {
    if (!size() || !event.isPrimary || event.button) return;
    pad.setPointerCapture(event.pointerId);
    from = place(event);
  });
  pad.addEventListener("pointermove", event => {
    if (from && size() && pad.hasPointerCapture(event.pointerId)) preview(place(event));
  });
  pad.addEventListener("pointerup", event => {
    if (!from || !pad.hasPointerCapture(event.pointerId)) return;
    const touch = from;
    drop();
    if (size()) done(touch, place(event));
  });
  pad.addEventListener("pointercancel", drop);
  // Otherwise a browser treats a fast swipe as a fling, and the next tap, which may be on Stop, as its end.
  pad.addEventListener("touchstart", event => event.preventDefault(), { passive: false });

  pad.addEventListener("keydown", event => {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const far = event.shiftKey ? LARGE_STEP : STEP;
    if (!size() || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in moves) {
      cross = cross.map((value, i) => Math.min(Math.max(value + far * moves[event.key][i], 0), 1));
    } else if (event.key === "s" || event.key === "S") {
      from = cross;
    } else if (event.key === "Enter" || event.key === " ") {
      const touch = from ?? cross;
      drop();
      done(touch, cross);
    } else if (event.key === "Escape" && from) {
      from = null;
      event.stopPropagation();
    } else {
      return;
    }
    event.preventDefault();
    if (size()) aim();
  });
  pad.addEventListener("focus", () => size() && pad.matches(":focus-visible") && aim());
  pad.addEventListener("blur", drop);

  function aim() {
    const { height, width } = size();
    const [y, x] = [cross[0] * height, cross[1] * width];
    const arm = Math.min(height, width) / 20;
    if (from) preview(cross); else draw(svg, null, { height, width });
    for (const name of ["halo", "mark"]) {
      svg.append(make("path", { d: `M${x - arm} ${y}H${x + arm}M${x} ${y - arm}V${y + arm}`, class: name, "stroke-width": arm / (name === "halo" ? 3 : 6) }));
    }
    pad.setAttribute("aria-label", `The phone's screen, to touch: ${Math.round(100 * cross[0])} percent down, ${Math.round(100 * cross[1])} percent across`);
  }
}
