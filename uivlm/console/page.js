// The page: shows the console's state and posts the person's commands. Every foreign text goes through textContent.

import { draw, showImage } from "/draw.js";
import { pointing } from "/point.js";
import { replaying } from "/replay.js";

const $ = id => document.getElementById(id);
const TOKEN = document.querySelector("meta[name=token]").content;
const ARMED_MS = 400; // before a drawn gesture can be confirmed, so that a double click cannot confirm the next one

const PHASES = {
  idle: "Nothing is running.",
  looking: "Taking a screenshot.",
  thinking: "The agent is deciding.",
  preview: "This gesture is next, unless you deny it.",
  confirming: "Waiting for you: confirm or deny the next gesture.",
  acting: "Performing the gesture.",
  human_control: "You have the phone: act on its screen, then hand it back.",
  recording: "Recording: your gestures on the screen are the demonstration.",
};
const OVERLAY = $("frame").querySelector("svg");
const QUIET = ["looking", "thinking", "acting"]; // not announced

let view = null; // the last state
let screenId = 0; // of the loaded screen
let drawn = "", armed = ""; // requests: the drawn gesture, and the one that can be confirmed

// -- display ------------------------------------------------------------------------------------------------------------

function show() {
  const { phase, pending } = view;
  const mine = ["human_control", "recording"].includes(phase);
  const asked = ["preview", "confirming"].includes(phase) && pending;
  const help = asked && !pending.gesture;

  if (mine && $("pad").hidden && view.screen) draw(OVERLAY, null, view.screen);
  announce(sentence());
  set("begin", phase === "idle");
  set("pursued", phase !== "idle");
  $("pursued").lastElementChild.textContent = view.goal;
  if (phase !== "idle") $("step_mode").checked = view.step_mode;
  set("next", Boolean(pending));
  set("steer", phase !== "idle" && phase !== "recording");
  set("mine", mine);
  set("pad", mine);
  set("pad-help", mine);
  set("finish", phase === "recording");
  set("stop", phase !== "idle");
  set("refresh", !agentHas());
  if (pending) showPending(pending);

  $("confirm").textContent = help ? "Look again" : "Confirm";
  $("deny").textContent = help ? "End the run" : "Deny";
  const open = asked && !view.stopping && armed === requestKey(pending) && screenId === view.screen?.id;
  able("confirm", open);
  able("always", open && pending.always);
  able("deny", asked && !view.stopping);
  able("take_over", agentHas() && !view.takeover_requested && !view.stopping);
  able("hand_back", phase === "human_control" && !view.stopping);
  able("stop", !view.stopping);
  for (const id of ["back", "home", "enter", "complete", "impossible"]) able(id, mine && !view.stopping);

  if (!document.activeElement.checkVisibility()) $("state").focus(); // the focused element is hidden now
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
  return !["idle", "human_control", "recording"].includes(view.phase);
}

function sentence() {
  if (view.stopping) return "Stopping: no further gesture is performed.";
  if (view.takeover_requested) return "You get the phone before the next gesture.";
  if (view.phase === "idle" && view.status) {
    return view.message.startsWith(view.status) ? `Ended: ${view.message}.` : `Ended, ${view.status}: ${view.message}.`;
  }
  if (view.phase === "confirming" && !view.pending?.gesture) return "Waiting for you: the run cannot continue.";
  return PHASES[view.phase];
}

function announce(text) {
  if ($("state").textContent === text) return;
  $("state").textContent = text;
  if (view && !QUIET.includes(view.phase)) $("announcement").textContent = text;
}

function showPending(pending) {
  setText($("description"), pending.gesture ? pending.description : "No gesture is possible.");
  const type = pending.action_type_confidence === null ? "" : ` (action type ${pending.action_type_confidence.toFixed(2)})`;
  const confidence = pending.confidence === null ? "" : ` · confidence ${pending.confidence.toFixed(2)}${type}`;
  setText($("model-output"), pending.text ? `Model output: ${pending.text}${confidence}` : "");
  setText($("always-what"), pending.always && `Always allow here: do not ask for ${pending.always} again.`);
  const reasons = pending.reasons.map(reason => `Confirmation needed: ${reason}.`);
  if (JSON.stringify([...$("reasons").children].map(item => item.textContent)) === JSON.stringify(reasons)) return;
  const items = reasons.map(reason => Object.assign(document.createElement("li"), { textContent: reason }));
  $("reasons").replaceChildren(...items);
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

async function showScreen() {
  const { screen } = view;
  set("frame", Boolean(screen));
  set("no-screen", !screen);
  if (!screen) {
    screenId = 0;
    return;
  }
  if (screenId !== screen.id) {
    try {
      if (!await showImage($("frame"), `/screens/${screen.id}`, "The phone's screen")) return;
    } catch {
      return; // it has changed: the next state names another
    }
    screenId = screen.id;
    draw(OVERLAY, null, screen);
  }
  if (view.screen?.id !== screenId || !$("pad").hidden) return; // the pad draws the person's gesture
  draw(OVERLAY, view.pending?.gesture ?? null, screen);
  if (view.pending && drawn !== requestKey(view.pending)) arm(requestKey(view.pending));
}

/** Each run numbers its requests from 1. */
function requestKey(pending) {
  return `${view.trace}/${pending.request_id}`;
}

function arm(key) {
  drawn = key;
  setTimeout(() => {
    armed = key;
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
  const src = `/steps/${encodeURIComponent(view.trace)}/${t}`;
  frame.append(Object.assign(new Image(), { src, alt: `Screen of step ${t + 1}` }), svg);
  draw(svg, step.gesture, step);
  const confidence = step.confidence === null ? "" : ` · confidence ${step.confidence.toFixed(2)}`;
  const byYou = step.actor === "human" && view.phase !== "recording" ? " · by you" : "";
  const textContent = `${t + 1}. ${step.description}${byYou}${confidence}`;
  item.append(frame, Object.assign(document.createElement("p"), { textContent }));
  return item;
}

// -- commands -----------------------------------------------------------------------------------------------------------

async function post(type, args = {}) {
  const headers = { "content-type": "application/json", "x-console-token": TOKEN };
  try {
    const response = await fetch("/commands", { method: "POST", headers, body: JSON.stringify({ type, ...args }) });
    wrong(response.ok ? "" : await response.text());
    return response.ok;
  } catch {
    wrong("the console does not respond: is it still running?");
    return false;
  }
}

function wrong(message) {
  $("wrong").hidden = !message;
  $("wrong").firstElementChild.textContent = message && `${message[0].toUpperCase()}${message.slice(1)}.`;
}

/** A disabled button keeps its focus and does nothing. */
function onPress(id, action) {
  $(id).addEventListener("click", () => $(id).ariaDisabled !== "true" && action());
}

$("begin").addEventListener("submit", event => {
  event.preventDefault();
  post("start", { goal: $("goal").value, step_mode: $("step_mode").checked });
});
onPress("dismiss", () => {
  wrong("");
  $("state").focus();
});
onPress("record", () => $("begin").reportValidity() && post("record", { goal: $("goal").value }));
$("step_mode").addEventListener("change", () => view?.phase !== "idle" && post("set_step_mode", { on: $("step_mode").checked }));
for (const id of ["confirm", "deny", "always"]) onPress(id, () => post(id, { request_id: view.pending.request_id }));
for (const id of ["take_over", "hand_back", "stop", "refresh"]) onPress(id, () => post(id));
for (const id of ["back", "home", "enter"]) onPress(id, () => post("press", { screen_id: screenId, key: id }));
for (const id of ["complete", "impossible"]) onPress(id, () => post("finish", { status: id }));
$("typing").addEventListener("submit", async event => {
  event.preventDefault();
  if (await post("type", { screen_id: screenId, text: $("text").value })) $("text").value = "";
});
document.addEventListener("keydown", event => {
  if (event.key === "Escape" && view && agentHas() && !view.stopping) post("stop");
});
const touchable = () => {
  const ready = view?.screen && view.screen.id === screenId && !$("pad").hidden && !view.stopping;
  return ready ? view.screen : null;
};
pointing($("pad"), OVERLAY, touchable, (touch, lift) => post("touch", { screen_id: screenId, touch, lift }));

// -- start --------------------------------------------------------------------------------------------------------------

const refreshTraces = replaying(wrong);
const events = new EventSource("/events");
events.addEventListener("message", event => {
  const before = view;
  view = JSON.parse(event.data);
  show();
  const ended = before && view.status && (before.trace !== view.trace || before.status !== view.status);
  if (ended) refreshTraces();
});
events.addEventListener("error", () => announce("The console does not respond: is it still running?"));
