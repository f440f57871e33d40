// Draws gestures on screens: a ring for a tap, an arrow for a swipe, a bar with text for the rest. Input: screen pixels (x, y).

const MAX_BAR_CHARS = 32;

/** Draw a gesture onto the svg that covers a screen of this size; null clears it. `dashed`: it is not executed. */
export function draw(svg, gesture, { height, width }, dashed = false) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...(gesture ? shapes(gesture, height, width, dashed) : []));
  svg.dataset.gesture = gesture ? gesture.type : "";
}

/** The gesture of an action that was not executed: fractions become pixels. */
export function gestureOf(action, { height, width }) {
  const pixel = point => [Math.floor(point.x * width), Math.floor(point.y * height)];
  switch (action?.type) {
    case "tap": return { type: "touch", points: [pixel(action.at)] };
    case "swipe": return { type: "touch", points: [pixel(action.start), pixel(action.end)] };
    case "type": return { type: "text", text: action.text };
    case "press": return { type: "key", key: action.key };
    default: return null;
  }
}

function shapes(gesture, height, width, dashed) {
  const thick = Math.max(2, Math.min(height, width) / 90);
  const line = dashed ? "mark dashed" : "mark";
  const twice = (name, shape) => [
    make(name, { ...shape, class: "halo", "stroke-width": thick * 1.8 }), make(name, { ...shape, class: line, "stroke-width": thick }),
  ];
  if (gesture.type === "text") return bar(`type “${gesture.text}”`, height, width);
  if (gesture.type === "key") return bar(`press ${gesture.key}`, height, width);
  const [[x, y], [toX, toY] = [x, y]] = gesture.points;
  const dot = make("circle", { cx: x, cy: y, r: thick, class: "dot", "stroke-width": thick / 3 });
  if (x === toX && y === toY) return [...twice("circle", { cx: x, cy: y, r: 5 * thick }), dot];
  const angle = Math.atan2(toY - y, toX - x);
  const corner = turn => `${toX - 4 * thick * Math.cos(angle + turn)},${toY - 4 * thick * Math.sin(angle + turn)}`;
  const points = `${x},${y} ${toX},${toY} ${corner(-0.5)} ${toX},${toY} ${corner(0.5)}`;
  return [...twice("polyline", { points }), dot];
}

function bar(text, height, width) {
  const size = Math.max(8, Math.min(height, width) / 18);
  const shown = make("text", { x: size / 2, y: height - 0.65 * size, "font-size": size });
  shown.textContent = text.length > MAX_BAR_CHARS ? `${text.slice(0, MAX_BAR_CHARS)}…` : text;
  return [make("rect", { x: 0, y: height - 2 * size, width, height: 2 * size, class: "bar" }), shown];
}

export function make(name, attributes) {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
  return shape;
}

/** Show the image in a frame when it is loaded. Returns false if another was requested since; rejects if loading fails. */
export async function showImage(frame, address, alt) {
  const image = new Image();
  image.src = address;
  image.alt = alt;
  frame.dataset.requested = address;
  await image.decode();
  if (frame.dataset.requested !== address) return false;
  frame.querySelector("img").replaceWith(image);
  return true;
}
