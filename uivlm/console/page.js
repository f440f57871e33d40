// The page: what the console tells is shown, what the person wants is posted. All texts of others go through textContent.

import { draw, showPicture } from "/draw.js";
import { pointing } from "/point.js";
import { replaying } from "/replay.js";

const $ = id => document.getElementById(id);
const TOKEN = document.querySelector("meta[name=token]").content;
const ARMED_MS = 400; // a gesture is shown so long before it can be confirmed: nobody confirms by a double click what was not seen

const STATES = {
  idle: "Nothing is running.",
  looking: "Looking at the phone.",
  thinking: "The agent decides.",
  next: "This is done next, unless you say otherwise.",
  asking: "Waiting for you: confirm or deny what is next.",
  acting: "The gesture is being done.",
  "by hand": "You have the phone: act on its screen, then hand it back.",
  recording: "Recording: what you do on the screen is the demonstration.",
};
const OVERLAY = $("frame").querySelector("svg");
const QUIET = ["looking", "thinking", "acting"]; // not worth reading out

let view = null; // as the console told it last
let onScreen = 0; // the number of the screen that is really seen
let arming = 0, armed = 0; // the number of the gesture that is drawn, and of the one that may be confirmed

// -- shown --------------------------------------------------------------------------------------------------------------

function show() {
  const { phase, next } = view;
  const mine = ["by hand", "recording"].includes(phase);
  const asked = ["next", "asking"].includes(phase) && next;
  const help = asked && !next.gesture;

  if (mine && $("pad").hidden && view.screen) draw(OVERLAY, null, view.screen);
  tell(sentence());
  set("begin", phase === "idle");
  set("pursued", phase !== "idle");
  $("pursued").lastElementChild.textContent = view.goal;
  if (phase !== "idle") $("wait_each").checked = view.step_mode;
  set("next", Boolean(next));
  set("steer", phase !== "idle" && phase !== "recording");
  set("mine", mine);
  set("pad", mine);
  set("pad-help", mine);
  set("finish", phase === "recording");
  set("stop", phase !== "idle");
  set("look", !agentHas());
  if (next) showNext(next);

  $("confirm").textContent = help ? "Look again" : "Confirm";
  $("deny").textContent = help ? "End the run" : "Deny";
  const open = asked && !view.stopping && armed === next.number && onScreen === view.screen?.number;
  able("confirm", open);
  able("deny", asked && !view.stopping);
  able("take_over", agentHas() && !view.taking && !view.stopping);
  able("hand_back", phase === "by hand" && !view.stopping);
  able("stop", !view.stopping);
  for (const id of ["back", "home", "enter", "complete", "impossible"]) able(id, mine && !view.stopping);

  if (!document.activeElement.checkVisibility()) $("state").focus(); // what had it is hidden now
  showScreen();
  showSteps();
}

function set(id, on) {
  $(id).hidden = !on;
}

function able(id, on) {
  $(id).ariaDisabled = String(!on);
}

function agentHas() {
  return !["idle", "by hand", "recording"].includes(view.phase);
}

function sentence() {
  if (view.stopping) return "Stopping: nothing more is begun.";
  if (view.taking) return "You get the phone before the next gesture.";
  if (view.phase === "idle" && view.status) return view.message.startsWith(view.status) ? `Ended: ${view.message}.` : `Ended, ${view.status}: ${view.message}.`;
  if (view.phase === "asking" && !view.next?.gesture) return "Waiting for you: the run cannot go on.";
  return STATES[view.phase];
}

function tell(words) {
  if ($("state").textContent === words) return;
  $("state").textContent = words;
  if (view && !QUIET.includes(view.phase)) $("said").textContent = words;
}

function showNext(next) {
  put($("what"), next.gesture ? next.what : "Nothing can be done.");
  const ofKind = next.kind_confidence === null ? "" : `, ${next.kind_confidence.toFixed(2)} of its kind`;
  const sure = next.confidence === null ? "" : ` · confidence ${next.confidence.toFixed(2)}${ofKind}`;
  put($("sure"), next.words ? `The agent said: ${next.words}${sure}` : "");
  const reasons = next.reasons.map(reason => `You are asked because ${reason}.`);
  if (JSON.stringify([...$("reasons").children].map(item => item.textContent)) === JSON.stringify(reasons)) return;
  $("reasons").replaceChildren(...reasons.map(reason => Object.assign(document.createElement("li"), { textContent: reason })));
}

function put(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

async function showScreen() {
  const { screen } = view;
  set("frame", Boolean(screen));
  set("no-screen", !screen);
  if (!screen) {
    onScreen = 0;
    return;
  }
  if (onScreen !== screen.number) {
    try {
      if (!await showPicture($("frame"), `/screen/${screen.number}`, "The phone's screen")) return;
    } catch {
      return; // it has changed since: the next view names another
    }
    onScreen = screen.number;
    draw(OVERLAY, null, screen);
  }
  if (view.screen?.number !== onScreen || !$("pad").hidden) return; // over a pad the finger itself is drawn
  draw(OVERLAY, view.next?.gesture ?? null, screen);
  if (view.next && arming !== view.next.number) arm(view.next.number);
}

function arm(number) {
  arming = number;
  setTimeout(() => {
    armed = number;
    show();
  }, ARMED_MS);
}

function showSteps() {
  const list = $("steps");
  if (list.dataset.trace !== view.trace) list.replaceChildren();
  list.dataset.trace = view.trace;
  $("no-steps").hidden = view.steps.length > 0;
  for (let t = list.children.length; t < view.steps.length; t++) list.append(stepItem(view.steps[t], t));
}

function stepItem(step, t) {
  const item = document.createElement("li");
  const frame = Object.assign(document.createElement("div"), { className: "frame" });
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("aria-hidden", "true");
  frame.append(Object.assign(new Image(), { src: `/steps/${encodeURIComponent(view.trace)}/${t}`, alt: `Screen of step ${t + 1}` }), svg);
  draw(svg, step.gesture, step);
  const sure = step.confidence === null ? "" : ` · confidence ${step.confidence.toFixed(2)}`;
  const words = `${t + 1}. ${step.what}${step.by === "person" && view.phase !== "recording" ? " · by you" : ""}${sure}`;
  item.append(frame, Object.assign(document.createElement("p"), { textContent: words }));
  return item;
}

// -- wanted -------------------------------------------------------------------------------------------------------------

async function post(deed, told = {}) {
  try {
    const answer = await fetch(`/do/${deed}`, {
      method: "POST", headers: { "content-type": "application/json", "x-console-token": TOKEN }, body: JSON.stringify(told),
    });
    wrong(answer.ok ? "" : await answer.text());
    return answer.ok;
  } catch {
    wrong("the console does not answer: is it still running?");
    return false;
  }
}

function wrong(words) {
  $("wrong").hidden = !words;
  $("wrong").firstElementChild.textContent = words && `${words[0].toUpperCase()}${words.slice(1)}.`;
}

/** A button that is dimmed keeps its focus, and does nothing. */
function press(id, told) {
  $(id).addEventListener("click", () => $(id).ariaDisabled !== "true" && told());
}

$("begin").addEventListener("submit", event => {
  event.preventDefault();
  post("start", { goal: $("goal").value, step_mode: $("wait_each").checked });
});
press("dismiss", () => {
  wrong("");
  $("state").focus();
});
press("record", () => $("begin").reportValidity() && post("record", { goal: $("goal").value }));
$("wait_each").addEventListener("change", () => view?.phase !== "idle" && post("wait_each", { on: $("wait_each").checked }));
for (const id of ["confirm", "deny"]) press(id, () => post(id, { number: view.next.number }));
for (const id of ["take_over", "hand_back", "stop", "look"]) press(id, () => post(id));
for (const id of ["back", "home", "enter"]) press(id, () => post("press", { screen: onScreen, key: id }));
for (const id of ["complete", "impossible"]) press(id, () => post("finish", { status: id }));
$("typing").addEventListener("submit", async event => {
  event.preventDefault();
  if (await post("type", { screen: onScreen, text: $("text").value })) $("text").value = "";
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && view && agentHas() && !view.stopping) post("stop");
});
const touchable = () => (view?.screen && view.screen.number === onScreen && !$("pad").hidden && !view.stopping ? view.screen : null);
pointing($("pad"), OVERLAY, touchable, (touch, lift) => post("gesture", { screen: onScreen, touch, lift }));

// -- begun --------------------------------------------------------------------------------------------------------------

const refresh = replaying(wrong);
const events = new EventSource("/events");
events.addEventListener("message", event => {
  const before = view;
  view = JSON.parse(event.data);
  show();
  if (before && view.status && (before.trace !== view.trace || before.status !== view.status)) refresh(); // one more has ended
});
events.addEventListener("error", () => tell("The console does not answer: is it still running?"));
