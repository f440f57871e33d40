// Gestures on screens: a ring for a tap, an arrow for a swipe, a bar with words for the rest. Pixels (x, y) of the screen in.

const LONGEST = 32; // letters in the bar

/** Draw what is done, or what was decided and not done, onto the svg that covers a screen of this size; null clears it. */
export function draw(svg, gesture, { height, width }, undone = false) {
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren(...(gesture ? shapes(gesture, height, width, undone) : []));
  svg.dataset.gesture = gesture ? gesture.kind : "";
}

/** The gesture of an action that was not done: fractions become pixels. */
export function gestureOf(action, { height, width }) {
  const pixel = point => [Math.floor(point.x * width), Math.floor(point.y * height)];
  switch (action?.kind) {
    case "Tap": return { kind: "Touch", path: [pixel(action.at)] };
    case "Swipe": return { kind: "Touch", path: [pixel(action.start), pixel(action.end)] };
    case "Type": return { kind: "Keys", text: action.text };
    case "Press": return { kind: "Button", name: action.key };
    default: return null;
  }
}

function shapes(gesture, height, width, undone) {
  const thick = Math.max(2, Math.min(height, width) / 90);
  const line = undone ? "mark undone" : "mark";
  const twice = (name, shape) => [
    make(name, { ...shape, class: "halo", "stroke-width": thick * 1.8 }), make(name, { ...shape, class: line, "stroke-width": thick }),
  ];
  if (gesture.kind !== "Touch") return bar(gesture.kind === "Keys" ? `type “${gesture.text}”` : `press ${gesture.name}`, height, width);
  const [[x, y], [toX, toY] = [x, y]] = gesture.path;
  const dot = make("circle", { cx: x, cy: y, r: thick, class: "dot", "stroke-width": thick / 3 });
  if (x === toX && y === toY) return [...twice("circle", { cx: x, cy: y, r: 5 * thick }), dot];
  const angle = Math.atan2(toY - y, toX - x);
  const corner = turn => `${toX - 4 * thick * Math.cos(angle + turn)},${toY - 4 * thick * Math.sin(angle + turn)}`;
  const points = `${x},${y} ${toX},${toY} ${corner(-0.5)} ${toX},${toY} ${corner(0.5)}`;
  return [...twice("polyline", { points }), dot];
}

function bar(words, height, width) {
  const size = Math.max(8, Math.min(height, width) / 18);
  const shown = make("text", { x: size / 2, y: height - 0.65 * size, "font-size": size });
  shown.textContent = words.length > LONGEST ? `${words.slice(0, LONGEST)}…` : words;
  return [make("rect", { x: 0, y: height - 2 * size, width, height: 2 * size, class: "bar" }), shown];
}

export function make(name, attributes) {
  const shape = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) shape.setAttribute(key, value);
  return shape;
}

/** Show the picture of this address in a frame as soon as it is there; false where another was wanted since. Rejects without one. */
export async function showPicture(frame, address, alt) {
  const picture = new Image();
  picture.src = address;
  picture.alt = alt;
  frame.dataset.wanted = address;
  await picture.decode();
  if (frame.dataset.wanted !== address) return false;
  frame.querySelector("img").replaceWith(picture);
  return true;
}
