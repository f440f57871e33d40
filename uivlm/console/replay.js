// The list of traces, and one of them step by step.

import { draw, gestureOf, showPicture } from "/draw.js";

const $ = id => document.getElementById(id);
const PLAY_MS = 1000; // a step
let trace = null; // {name, goal, status, message, rows}
let at = 0;
let timer = null;
let shown = 0; // traces in the list
let asked = 0; // lists so far

export function replaying(wrong) {
  $("refresh").addEventListener("click", () => list(0));
  $("older").addEventListener("click", () => list(shown));
  $("previous").addEventListener("click", () => { pause(); step(at - 1); });
  $("following").addEventListener("click", () => { pause(); step(at + 1); });
  $("play").addEventListener("click", () => (timer ? pause() : play()));
  $("close").addEventListener("click", () => { pause(); trace = null; $("replay").hidden = true; $("refresh").focus(); });
  list(0);
  return () => list(0);

  async function list(start) {
    const mine = ++asked;
    const found = await ask(`/traces?start=${start}`);
    if (!found || mine !== asked) return; // another list was asked for since
    const lines = found.traces.map(line);
    if (start) $("list").append(...lines); else $("list").replaceChildren(...lines);
    shown = start + lines.length;
    $("no-traces").hidden = shown > 0;
    $("older").hidden = !found.more;
  }

  function line(one) {
    const item = document.createElement("li");
    const small = document.createElement("small");
    if (one.broken !== undefined) {
      item.className = "broken";
      item.textContent = `${one.name}: broken`;
      small.textContent = one.broken;
      item.append(small);
      return item;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = one.goal;
    const who = one.by === "person" ? "demonstration" : "run";
    small.textContent = `${one.started} · ${who} · ${one.status} · ${one.steps} ${one.steps === 1 ? "step" : "steps"}`;
    button.append(small);
    button.addEventListener("click", () => open(one.name));
    item.append(button);
    return item;
  }

  async function open(name) {
    const found = await ask(`/traces/${encodeURIComponent(name)}`);
    if (!found) return;
    pause();
    trace = { name, ...found };
    $("replay-title").textContent = trace.goal;
    $("replay-status").textContent = `${trace.status}: ${trace.message}`;
    $("replay").hidden = false;
    $("replay-frame").hidden = !trace.rows.length;
    await step(0);
    $("replay-title").focus();
  }

  async function step(t) {
    const last = trace.rows.length - 1;
    at = Math.min(Math.max(t, 0), Math.max(last, 0));
    $("previous").ariaDisabled = String(at === 0);
    $("following").ariaDisabled = $("play").ariaDisabled = String(at >= last);
    const row = trace.rows[at];
    if (!row) {
      $("replay-step").textContent = "Nothing was seen.";
      return;
    }
    const seen = `${at + 1} of ${trace.rows.length}`;
    const notes = [
      row.by === "person" ? "by a person" : "", row.proposed ? `instead of ${row.proposed}` : "", row.done ? "" : "not done",
      row.confidence === null ? "" : `confidence ${row.confidence.toFixed(2)}`,
    ];
    try {
      if (!await showPicture($("replay-frame"), `/traces/${encodeURIComponent(trace.name)}/${at}`, `Screen ${seen}`)) return;
    } catch {
      wrong(`the screen of step ${seen} cannot be shown`);
      return;
    }
    $("replay-step").textContent = [`${seen}: ${row.what}`, ...notes.filter(Boolean)].join(" · ");
    draw($("replay-frame").querySelector("svg"), row.gesture ?? gestureOf(row.action, row), row, !row.done);
  }

  function play() {
    if ($("play").ariaDisabled === "true") return;
    $("play").textContent = "Pause";
    timer = setInterval(async () => {
      await step(at + 1);
      if (at >= trace.rows.length - 1) pause();
    }, PLAY_MS);
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    $("play").textContent = "Play";
  }

  async function ask(address) {
    try {
      const answer = await fetch(address);
      if (answer.ok) return await answer.json();
      wrong(await answer.text());
    } catch {
      wrong("the console does not answer");
    }
    return null;
  }
}
