// The list of traces, and one of them step by step.

import { draw, gestureOf, showImage } from "/draw.js";

const $ = id => document.getElementById(id);
const PLAY_MS = 1000; // a step
let trace = null; // {name, goal, status, message, steps}
let at = 0; // step
let timer = null;
let shown = 0; // traces in the list
let requests = 0; // for lists

export function replaying(wrong) {
  $("refresh_traces").addEventListener("click", () => list(0));
  $("older").addEventListener("click", () => list(shown));
  $("previous").addEventListener("click", () => { pause(); step(at - 1); });
  $("following").addEventListener("click", () => { pause(); step(at + 1); });
  $("play").addEventListener("click", () => (timer ? pause() : play()));
  $("close").addEventListener("click", () => { pause(); trace = null; $("replay").hidden = true; $("refresh_traces").focus(); });
  list(0);
  return () => list(0);

  async function list(start) {
    const request = ++requests;
    const response = await get(`/traces?start=${start}`);
    if (!response || request !== requests) return; // a later request replaced this one
    const lines = response.traces.map(line);
    if (start) $("list").append(...lines); else $("list").replaceChildren(...lines);
    shown = start + lines.length;
    $("no-traces").hidden = shown > 0;
    $("older").hidden = !response.more;
  }

  function line(summary) {
    const item = document.createElement("li");
    const small = document.createElement("small");
    if (summary.error !== undefined) {
      item.className = "damaged";
      item.textContent = `${summary.name}: damaged`;
      small.textContent = summary.error;
      item.append(small);
      return item;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = summary.goal;
    const type = summary.actor === "human" ? "demonstration" : "run";
    const count = `${summary.num_steps} ${summary.num_steps === 1 ? "step" : "steps"}`;
    small.textContent = `${summary.started} · ${type} · ${summary.status} · ${count}`;
    button.append(small);
    button.addEventListener("click", () => open(summary.name));
    item.append(button);
    return item;
  }

  async function open(name) {
    const run = await get(`/traces/${encodeURIComponent(name)}`);
    if (!run) return;
    pause();
    trace = { name, ...run };
    $("replay-title").textContent = trace.goal;
    $("replay-status").textContent = `${trace.status}: ${trace.message}`;
    $("replay").hidden = false;
    $("replay-frame").hidden = !trace.steps.length;
    await step(0);
    $("replay-title").focus();
  }

  async function step(t) {
    const last = trace.steps.length - 1;
    at = Math.min(Math.max(t, 0), Math.max(last, 0));
    $("previous").ariaDisabled = String(at === 0);
    $("following").ariaDisabled = $("play").ariaDisabled = String(at >= last);
    const shown = trace.steps[at];
    if (!shown) {
      $("replay-step").textContent = "The run has no screens.";
      return;
    }
    const count = `${at + 1} of ${trace.steps.length}`;
    const notes = [
      shown.actor === "human" ? "by a human" : "",
      shown.proposed ? `instead of ${shown.proposed}` : "",
      shown.executed ? "" : "not executed",
      shown.confidence === null ? "" : `confidence ${shown.confidence.toFixed(2)}`,
    ];
    try {
      const address = `/traces/${encodeURIComponent(trace.name)}/${at}`;
      if (!await showImage($("replay-frame"), address, `Screen ${count}`)) return;
    } catch {
      wrong(`cannot show the screen of step ${count}`);
      return;
    }
    $("replay-step").textContent = [`${count}: ${shown.description}`, ...notes.filter(Boolean)].join(" · ");
    draw($("replay-frame").querySelector("svg"), shown.gesture ?? gestureOf(shown.action, shown), shown, !shown.executed);
  }

  function play() {
    if ($("play").ariaDisabled === "true") return;
    $("play").textContent = "Pause";
    timer = setInterval(async () => {
      await step(at + 1);
      if (at >= trace.steps.length - 1) pause();
    }, PLAY_MS);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    $("play").textContent = "Play";
  }

  async function get(address) {
    try {
      const response = await fetch(address);
      if (response.ok) return await response.json();
      wrong(await response.text());
    } catch {
      wrong("the console does not respond");
    }
    return null;
  }
}
