import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { window } from "./window.js";

window.HTMLCanvasElement.prototype.getContext = () => null;

// Frames, clock and beats are the test's own: nothing happens unless it says so.
let frames = [];
let beats = [];
let now = 0;
globalThis.requestAnimationFrame = (fn) => frames.push(fn);
globalThis.cancelAnimationFrame = () => (frames = []);
globalThis.setInterval = (fn) => beats.push(fn);
globalThis.clearInterval = () => (beats = []);
globalThis.setTimeout = (fn) => (fn(), 0);
Object.defineProperty(globalThis, "performance", { value: { now: () => now * 1000 } });

const { render, renderLive } = await import("../../../nbmodule/views/frontend/live.js");
const link = (await import("../../../nbmodule/views/frontend/live_link.js")).default;
const { rounded } = await import("../../../nbmodule/views/frontend/live_controls.js");

const base64 = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
const points = (steps, values) => ({ s: base64(Float64Array.from(steps)), v: base64(Float32Array.from(values)) });
const series = (name, group, role, steps, values) => ({ name, group, role, n: steps.length, last: values.at(-1), best: [steps.at(-1), values.at(-1)], ...points(steps, values) });
const progress = (more) => ({ state: "running", done: 20, total: 100, epoch: 2, epochs: 4, rate: 212.4, remaining: 13, elapsed: 5, reason: "", step: 20, ended: false, ...more });
const WEIGHT = { paths: ["head", "body", "body.0"], fields: ["mean", "std", "low", "high", "nonfinite", "zero"], steps: base64(Float64Array.of(10, 20)), left: 2 };
const rows = (bad) => Float32Array.from([...[0, 1, -1, 1, 0, 0, 0, 2, -1, 1, 0, 0, 0, 3, -1, 1, 0, 0], ...[0, 5, -1, 1, 0, 0, 0, 6, -1, 1, bad, 0, 0, 7, -1, 1, 0, 0]]);
const over = base64(Uint8Array.from({ length: 32 }, (_, i) => i));

function record(more = {}) {
  return {
    view: "live",
    title: ["digits"],
    run: "r1",
    progress: progress(),
    series: [series("loss", "loss", "train", [1, 10, 20], [1, 0.5, 0.25]), series("val_loss", "loss", "val", [10, 20], [0.7, 0.4]), series("accuracy", "accuracy", "train", [20], [0.9])],
    earlier: [{ ended: "done", series: [{ name: "loss", ...points([1, 40], [2, 1]) }] }],
    strips: { weight: { ...WEIGHT, values: base64(rows(0)), bins: base64(new Uint8Array(48).fill(9)), over: { head: over } } },
    controls: [
      { name: "learning rate", kind: "slider", value: 0.01, group: "", error: null, low: 1e-4, high: 1, log: true },
      { name: "augment", kind: "toggle", value: false, group: "", error: null },
      { name: "mode", kind: "field", value: "a", group: "", error: null, type: "str", choices: ["a", "b"] },
      { name: "freeze head", kind: "toggle", value: false, group: "freeze", error: null },
    ],
    messages: [{ step: 5, kind: "error", text: "stop_when raised KeyError: 'x' (cell 3, line 2: h.x)", detail: "Traceback", times: 3 }],
    media: [{ name: "sample", n: 2, entries: [{ step: 10, html: "<pre>first</pre>" }, { step: 20, html: "<pre>second</pre>" }] }],
    about: ["only weights are watched"],
    route: { kind: "pump", text: "buttons act between two steps" },
    cost: { share: 0.008, budget: 0.02, rate: 5 },
    ...more,
  };
}

let host;
let end;
let sent = [];
let listener = () => {};
const channel = { send: (m) => void sent.push(m), onMessage: (fn) => ((listener = fn), () => (listener = () => {})) };
const paint = () => {
  const due = frames;
  frames = [];
  for (const fn of due) fn();
};
const $ = (selector) => host.querySelector(selector);
const $$ = (selector) => [...host.querySelectorAll(selector)];
// The title of a button that is off says why; then its text tells which one it is.
const TEXTS = {
  "Make one step, then pause": "Step",
  "Pause after this step": "Pause",
  "Stop after this step; what follows the loop runs": "Stop",
  "Go back to the beginning of this step and go on from there": "rewind to here",
  "Replay this step and open its batch, returns and gradients": "replay",
};
const button = (label) => $$("button").find((node) => [node.getAttribute("aria-label"), node.title].includes(label) || (TEXTS[label] && node.textContent.includes(TEXTS[label])));
const facts = () => $(".nbm-facts").textContent;
const spoken = () => $("[aria-live=polite]").textContent;
const press = (key, node = host.querySelector(".nbm-view")) => node.dispatchEvent(new window.KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));

function show(data = record(), line = null) {
  end = render(host, data, line);
  paint();
}

/** With a kernel: connected, greeted, answered. */
function live(data = record()) {
  show(data, channel);
  listener({ kind: "snapshot", page: sent[0].page, n: 0, t: 0, record: data }, []);
  paint();
}

/** Let the beat come at this second. */
function wait(seconds) {
  now = seconds;
  beats[0]();
  paint();
}

let number = 0;
function tick(more) {
  listener({ kind: "tick", n: ++number, t: now, ...more }, []);
  paint();
}

beforeEach(() => {
  end?.();
  [frames, beats, sent, number, now] = [[], [], [], 0, 0];
  globalThis.nbmMemory = globalThis.nbmLive = undefined;
  document.body.replaceChildren();
  host = document.body.appendChild(document.createElement("div"));
});

test("both names draw the same view", () => assert.equal(render, renderLive));

test("the title says state in mark and word, progress, rate and remaining time", () => {
  live();
  assert.equal($(".nbm-run-mark").textContent, "●");
  assert.equal($(".nbm-run-mark").dataset.state, "running");
  assert.equal(facts(), "● running · digitsepoch 2/4 · step 20/100 · 212/s · 13 s left");
  assert.equal($("[role=progressbar]").getAttribute("aria-valuenow"), "20");
});

test("before the first step it says for how long the step compiles", () => {
  const waiting = record({ progress: progress({ done: 0, step: 0, state: "waiting", rate: null, remaining: null }) });
  show(waiting, channel);
  wait(4.2);
  assert.match(facts(), /compiling the first step, 4 s/);
});

test("without a kernel buttons and controls are off, and say why", () => {
  show();
  for (const label of ["Pause after this step", "Make one step, then pause"]) {
    assert.ok(button(label).disabled);
    assert.equal(button(label).title, "needs the running kernel");
  }
  assert.ok($$(".nbm-run-control input").every((node) => node.disabled));
  wait(6);
  assert.match($(".nbm-foot").textContent, /had not ended when the view was saved/);
});

test("a view that no kernel has answered says so within three seconds, and does not say that it is gone", () => {
  const seen = Math.floor(Date.now() / 1000) - 20;
  show(record({ progress: progress({ done: 12, seen }) }));
  wait(3.1);
  assert.match(facts(), /^○ no answer from the kernel, step 12, \d\d:\d\d · digits$/);
  assert.match($(".nbm-foot").textContent, /busy, or cannot be reached from here.*live\.show_widget\(\)/);
});

test("a view whose kernel is gone says at which step, and neither a rate nor a time left", () => {
  show(record({ progress: progress({ done: 11856, seen: 1700000000 }) }));
  wait(6);
  assert.match(facts(), /^■ kernel gone at step 11,856, \d\d:\d\d · digits$/);
  assert.match($(".nbm-foot").textContent, /nb\.last_run\(\) has what its journal holds/);
});

/** A click in the middle of the first plot. */
function clickCurve() {
  const plot = $(".nbm-run-plots svg.nbm-curve");
  const at = 52 + (Number(plot.getAttribute("width")) - 64) / 2;
  for (const kind of ["pointerdown", "pointerup"]) plot.dispatchEvent(new window.MouseEvent(kind, { clientX: at, bubbles: true, cancelable: true }));
  paint();
}

test("a click on a curve asks for that step, and opens what comes below the curves", () => {
  live();
  clickCurve();
  const asked = sent.at(-1);
  assert.equal(asked.kind, "at");
  assert.match($(".nbm-run-replay").textContent, /replaying step/);
  listener({ kind: "replay", page: "another", step: asked.step, html: "<p>theirs</p>" }, []);
  listener({ kind: "replay", page: asked.page, step: asked.step, html: "<p>batch and returns</p>" }, []);
  paint();
  assert.equal($(".nbm-run-replayed").textContent, "batch and returns");
  button("Go back to the beginning of this step and go on from there").click();
  assert.deepEqual([sent.at(-1).kind, sent.at(-1).step], ["rewind", asked.step]);
  button("Close this step").click();
  paint();
  assert.ok($(".nbm-run-replay").hidden);
  assert.equal($(".nbm-run-replayed").textContent, "");
});

test("a step that cannot be repeated says why, and an opened one outlives a drawing anew", () => {
  live();
  clickCurve();
  const { page, step } = sent.at(-1);
  listener({ kind: "replay", page, step, error: "steps 3,050 to 3,120 are kept" }, []);
  paint();
  assert.equal($(".nbm-run-replayed .nbm-failed").textContent, "steps 3,050 to 3,120 are kept");
  listener({ kind: "replay", page, step, html: "<p>kept</p>" }, []);
  end();
  live();
  assert.equal($(".nbm-run-replayed").textContent, "kept");
});

test("a click opens a step of a run that is over, as long as its line is open", () => {
  show(record({ progress: progress({ state: "done", ended: true }), cost: { share: 0.01, budget: 0.02, rate: 0, kept: 2048 } }), channel);
  assert.deepEqual(sent, []);
  clickCurve();
  const asked = sent.at(-1);
  assert.equal(asked.kind, "at");
  listener({ kind: "replay", page: asked.page, step: asked.step, html: "<p>batch</p>" }, []);
  paint();
  assert.equal($(".nbm-run-replayed").textContent, "batch");
  assert.ok(!button("Replay this step and open its batch, returns and gradients").disabled);
  const rewind = button("Go back to the beginning of this step and go on from there");
  assert.ok(rewind.disabled && rewind.title === "the run is over: live.rewind works from code");
  assert.match($(".nbm-run-steps").textContent, /keeps 2.00 KiB of its steps/);
});

test("without a kernel a click says how to open the step in code", () => {
  show(record({ progress: progress({ ended: true, state: "done" }) }));
  clickCurve();
  assert.match($(".nbm-run-replay").textContent, /step \d+: live\.at\(\d+\) replays it/);
  assert.ok(button("Replay this step and open its batch, returns and gradients").disabled);
});

test("branches are drawn ahead of the curve, and a button takes one; events are marks", () => {
  live(record({ messages: [{ step: 10, kind: "note", text: "rate: 0.1 → 0.03", detail: "", times: 1, mark: "changed" }] }));
  tick({ branches: [{ label: "x 0.3", note: "", series: [{ name: "loss", ...points([21, 22, 30], [0.2, 0.1, 0.05]) }] }] });
  assert.equal($$(".nbm-run-plots text").filter((node) => node.textContent === "x 0.3").length, 1);
  assert.match($(".nbm-event").textContent, /◆step 10: rate: 0\.1 → 0\.03/);
  assert.equal(button("Go on with x 0.3").textContent, "take x 0.3 → loss 0.05");
  button("Go on with x 0.3").click();
  assert.deepEqual([sent.at(-1).kind, sent.at(-1).branch], ["take", 0]);
  tick({ branches: [] });
  assert.ok(!button("Go on with x 0.3"));
});

test("a run that is over has no buttons, and reads like a static form", () => {
  show(record({ progress: progress({ state: "stopped", reason: "by button after step 20", ended: true, remaining: null }) }));
  assert.ok(button("Pause after this step").hidden);
  assert.match(facts(), /■ stopped .* by button after step 20/);
  assert.equal(sent.length, 0);
  wait(10);
  assert.ok(!$(".nbm-foot").textContent.includes("had not ended"));
});

test("series of one unit share a plot, earlier runs are pale, and each line is named with its value", () => {
  live();
  const plots = $$(".nbm-curve");
  assert.equal(plots.length, 2);
  assert.match(plots[0].getAttribute("aria-label"), /loss from 1 to 0.25, best 0.25 at step 20; val_loss from 0.7 to 0.4/);
  assert.equal(plots[0].querySelectorAll("path.nbm-line").length, 3);
  assert.equal(plots[0].querySelectorAll(".nbm-run-pale").length, 1);
  assert.equal(plots[0].querySelectorAll('[stroke-dasharray="6 3"]').length, 1);
  assert.deepEqual($$(".nbm-run-key").map((node) => node.textContent.trim()), ["loss 0.25", "val_loss 0.4", "accuracy 0.9"]);
});

test("a series can be hidden and comes back", () => {
  live();
  $$(".nbm-run-key")[1].click();
  paint();
  assert.equal($(".nbm-curve").querySelectorAll('[stroke-dasharray="6 3"]').length, 0);
  assert.equal($$(".nbm-run-key")[1].getAttribute("aria-pressed"), "false");
  $$(".nbm-run-key")[1].click();
  paint();
  assert.equal($(".nbm-curve").querySelectorAll('[stroke-dasharray="6 3"]').length, 1);
});

test("the pointer reads all series of all plots at one step", () => {
  live();
  const plot = $(".nbm-curve");
  const event = new window.MouseEvent("pointermove", { bubbles: true, clientX: 52 });
  plot.dispatchEvent(event);
  assert.deepEqual($$(".nbm-run-key b").map((node) => node.textContent), ["1", "—", "—"], "the others were logged later");
  assert.deepEqual($$(".nbm-run-key").map((node) => node.textContent.trim()), ["loss 1", "val_loss — from 10", "accuracy — from 20"]);
  assert.ok($$(".nbm-legend").every((node) => node.textContent.includes("step 1")));
  plot.dispatchEvent(new window.MouseEvent("pointerleave"));
  assert.equal($(".nbm-run-key b").textContent, "0.25");
});

test("dragging zooms all plots, Escape shows the whole run again", () => {
  live();
  const plot = () => $(".nbm-curve");
  const at = (kind, x) => plot().dispatchEvent(new window.MouseEvent(kind, { bubbles: true, clientX: x, cancelable: true }));
  at("pointerdown", 60);
  at("pointermove", 160);
  assert.equal(plot().querySelector(".nbm-run-zoom").getAttribute("visibility"), "visible");
  at("pointerup", 160);
  paint();
  assert.ok(!button("Show all steps (Esc, or a double click in a plot)").hidden);
  press("Escape");
  paint();
  assert.ok(button("Show all steps (Esc, or a double click in a plot)").hidden);
});

test("a press acts at once in the page and again when the loop confirms", () => {
  live();
  button("Pause after this step").click();
  paint();
  assert.deepEqual({ ...sent.at(-1), page: "" }, { kind: "pause", page: "" });
  assert.equal($(".nbm-run-said").textContent, "pausing after this step");
  tick({ progress: progress({ state: "paused", done: 21 }) });
  assert.equal($(".nbm-run-said").textContent, "");
  assert.equal($(".nbm-run-mark").textContent, "‖");
  assert.equal(button("Resume the run").textContent, "▸ Resume");
  assert.equal(spoken(), "paused after step 21");
});

test("a press that is not confirmed for two seconds says what else works", () => {
  live();
  button("Stop after this step; what follows the loop runs").click();
  wait(2.5);
  assert.match($(".nbm-run-said").textContent, /stopping after this step … .*interrupt button, pressed twice/);
});

test("each step is drawn and none is spoken", () => {
  live();
  for (let k = 0; k < 5; k++) tick({ progress: progress({ done: 21 + k }) });
  assert.equal(spoken(), "");
  assert.match(facts(), /step 25\/100/);
});

test("several messages between two frames are drawn once", () => {
  live();
  for (let k = 0; k < 30; k++) listener({ kind: "tick", n: ++number, t: 0, progress: progress({ done: 30 + k }) }, []);
  assert.equal(frames.length, 1);
  assert.equal(sent.filter((m) => m.kind === "ack").length, 30);
  paint();
  assert.match(facts(), /step 59\/100/);
});

test("new points move the curves", () => {
  live();
  tick({ series: [{ name: "loss", group: "loss", role: "train", n: 4, last: 0.125, best: [30, 0.125], ...points([30], [0.125]) }] });
  assert.match($(".nbm-curve").getAttribute("aria-label"), /best 0.125 at step 30/);
  assert.equal($(".nbm-run-steps input").max, "30");
});

test("sliders, switches and choices send their values and show what the loop uses", () => {
  live();
  const [rate, augment] = $$(".nbm-run-control input");
  rate.value = "750";
  rate.dispatchEvent(new window.Event("input"));
  assert.deepEqual({ ...sent.at(-1), page: "" }, { kind: "set", name: "learning rate", value: 0.1, page: "" });
  rate.dispatchEvent(new window.Event("change"));
  augment.click();
  assert.equal(sent.at(-1).value, true);
  const mode = $(".nbm-run-control select");
  mode.value = "b";
  mode.dispatchEvent(new window.Event("change"));
  assert.equal(sent.at(-1).value, "b");
  const controls = record().controls;
  controls[0].value = 0.001;
  controls[0].error = "ValueError: too small";
  tick({ controls });
  assert.equal(rate.value, "250");
  assert.equal(rate.getAttribute("aria-valuetext"), "0.001");
  assert.match($(".nbm-run-row .nbm-failed").textContent, /too small/);
});

test("a slider that is held is not moved by what arrives", () => {
  live();
  const [rate] = $$(".nbm-run-control input");
  rate.value = "900";
  rate.dispatchEvent(new window.Event("input"));
  tick({ controls: record().controls });
  assert.equal(rate.value, "900");
  rate.dispatchEvent(new window.Event("change"));
  tick({ controls: record().controls });
  assert.equal(rate.value, "900", "the old value was on its way when the new one was sent");
  now = 3;
  tick({ controls: record().controls });
  assert.equal(rate.value, "500", "the loop did not take the new value");
});

test("values of sliders are rounded to three digits, the ends are exact", () => {
  assert.equal(rounded(0.0123456, 0, 1), 0.0123);
  assert.equal(rounded(1 / 3, 1 / 3, 1), 1 / 3);
});

test("a slider beside the button for more controls is never taken out of the page, so that it can be drawn", () => {
  live();
  const seen = new window.MutationObserver(() => {});
  seen.observe($(".nbm-run-side") ?? $(".nbm-run-control").closest(".nbm-run-row").parentElement, { childList: true });
  assert.ok(button("Show all controls"));
  for (let k = 0; k < 3; k++) tick({ controls: record().controls });
  assert.deepEqual(seen.takeRecords(), []);
});

test("what is pressed stays until it is let go, though the run goes on", () => {
  live();
  const row = $(".nbm-run-strip[data-path=head]");
  const pointer = (kind, node) => node.dispatchEvent(new window.MouseEvent(kind, { bubbles: true, composed: true }));
  const sample = { fields: WEIGHT.fields, steps: base64(Float64Array.of(21)), values: base64(new Float32Array(18).fill(0.5)) };
  pointer("pointerdown", row);
  tick({ strips: { weight: sample }, progress: progress({ done: 21 }) });
  assert.ok(row.isConnected);
  pointer("pointerup", row);
  row.click();
  paint();
  assert.equal($(".nbm-run-strip[aria-selected=true]").dataset.path, "head");
  assert.match(facts(), /step 21/);
});

test("controls of a group wait behind a button", () => {
  live();
  assert.equal($$(".nbm-run-control").length, 3);
  button("Show all controls").click();
  paint();
  assert.equal($$(".nbm-run-control").length, 4);
});

test("children of the root come first and open to what is below", () => {
  live();
  const paths = () => $$("[data-path]").map((node) => node.dataset.path);
  assert.deepEqual(paths(), ["head", "body"]);
  $('[data-path="body"] .nbm-fold').click();
  paint();
  assert.deepEqual(paths(), ["head", "body", "body.0"]);
  assert.match($(".nbm-run-strips").textContent, /2 more submodules: live.watched/);
});

test("what is not finite is on top, in words, and spoken as an alarm", () => {
  live(record({ strips: { weight: { ...WEIGHT, values: base64(rows(12)) } }, messages: [] }));
  const first = $("[data-path]");
  assert.equal(first.dataset.path, "body");
  assert.match(first.textContent, /weight non-finite 12/);
  assert.ok(first.classList.contains("nbm-wrong"));
  tick({ messages: [{ step: 21, kind: "error", text: "12 weights of body are not finite", detail: "", times: 1 }] });
  assert.equal(spoken(), "12 weights of body are not finite");
});

test("arrows move through the rows, Enter opens the histograms, Space folds", () => {
  live();
  const row = (path) => $(`[data-path="${path}"]`);
  row("head").focus();
  press("ArrowDown", row("head"));
  assert.equal(document.activeElement.dataset.path, "body");
  press(" ", row("body"));
  paint();
  assert.ok(row("body.0"));
  press("Enter", row("head"));
  row("head").focus();
  press("Enter", row("head"));
  paint();
  assert.deepEqual({ ...sent.at(-1), page: "" }, { kind: "detail", path: "head", quantity: "weight", page: "" });
  assert.match($(".nbm-run-over canvas").getAttribute("aria-label"), /histograms of head over 2 samples from step 10/);
});

test("the detail shows weights, gradients or returns, whatever the submodule has", () => {
  const of = (paths) => ({ ...WEIGHT, paths, values: base64(rows(0)), bins: base64(new Uint8Array(48).fill(9)), over: { [paths[0]]: over } });
  live(record({ strips: { weight: of(["head", "body", "body.0"]), return: of(["relu", "head", "body"]) } }));
  const order = $$("[data-path]").map((node) => node.dataset.path);
  assert.deepEqual(order, ["relu", "head", "body"]);
  const open = (path) => {
    $(`[data-path="${path}"]`).click();
    paint();
  };
  const choices = () => $$(".nbm-detail .nbm-path button").map((node) => `${node.textContent}${node.getAttribute("aria-pressed") === "true" ? "*" : ""}`);
  open("relu");
  assert.deepEqual(choices(), ["returns*"]);
  assert.equal(sent.at(-1).quantity, "return");
  open("head");
  assert.deepEqual(choices(), ["weights*", "returns"]);
  button("Show the returns of this submodule").click();
  paint();
  assert.deepEqual(choices(), ["weights", "returns*"]);
  assert.deepEqual({ ...sent.at(-1), page: "" }, { kind: "detail", path: "head", quantity: "return", page: "" });
});

test("what is watched and what is not may change while the run goes on", () => {
  live();
  assert.match($(".nbm-foot").textContent, /only weights are watched/);
  tick({ about: [] });
  assert.doesNotMatch($(".nbm-foot").textContent, /only weights are watched/);
});

test("the slider of steps moves numbers, curves and logged things together", () => {
  live();
  press("[");
  paint();
  assert.equal($(".nbm-run-steps input").getAttribute("aria-valuetext"), "step 10 of 20");
  assert.equal($(".nbm-run-key b").textContent, "0.5");
  assert.match($('[data-path="head"]').textContent, /0 ± 1/);
  assert.match($(".nbm-run-media").textContent, /sample step 10first/);
  press("]");
  paint();
  assert.match($('[data-path="head"]').textContent, /0 ± 5/);
  assert.match($(".nbm-run-media").textContent, /second/);
});

test("the slider shows what changed since a step, histograms of that step, and moves with the steps of the whole page", () => {
  live();
  const bars = () => $('[data-path="head"] .nbm-hist path')?.getAttribute("d");
  const newest = bars();
  press("[");
  paint();
  assert.ok(bars() && bars() !== newest);
  $$("button").find((node) => node.textContent === "compare").click();
  paint();
  assert.match($('[data-path="head"]').textContent, /\+0, ×1$/);
  let told = 0;
  document.addEventListener("nbm-step", (event) => (told = event.detail), { once: true });
  press("]");
  paint();
  assert.equal(told, 20);
  assert.match($('[data-path="head"]').textContent, /\+0, ×5$/);
  assert.match($(".nbm-run-weight").textContent, /less @10/);
  document.dispatchEvent(new window.CustomEvent("nbm-step", { detail: 10 }));
  paint();
  assert.equal($(".nbm-run-steps input").getAttribute("aria-valuetext"), "step 10 of 20");
});

test("what was not measured at a step is a dash that says when it was first watched, and its curve begins there", () => {
  const later = { ...WEIGHT, steps: base64(Float64Array.of(20)), values: base64(rows(0).subarray(18)) };
  live(record({ strips: { weight: { ...WEIGHT, values: base64(rows(0)) }, gradient: later } }));
  const cell = (quantity) => $(`[data-path="head"] .nbm-run-${quantity}`);
  const begin = (quantity) => Number(cell(quantity).querySelector("path, circle").getAttribute("d")?.match(/^M([\d.]+)/)?.[1] ?? NaN);
  assert.ok(begin("gradient") > begin("weight"), "a curve that began later begins further right");
  press("[");
  paint();
  assert.equal(cell("gradient").textContent, "—");
  assert.equal(cell("gradient").title, "first watched at step 20");
  assert.match($(".nbm-run-strips .nbm-head").textContent, /gradient from 20/);
  assert.doesNotMatch($(".nbm-run-strips").textContent, /NaN/);
});

test("numbers of another step than the one that is looked at say of which", () => {
  live();
  $(".nbm-run-steps input").value = "15";
  $(".nbm-run-steps input").dispatchEvent(new window.Event("input"));
  paint();
  assert.match($(".nbm-run-strips .nbm-head").textContent, /weight @10/);
  assert.deepEqual($$(".nbm-run-key").map((node) => node.textContent.trim()), ["loss 0.5 @10", "val_loss 0.7 @10", "accuracy — from 20"]);
});

test("a best value names its series where there are several", () => {
  live();
  assert.deepEqual($$(".nbm-legend > .nbm-quiet").map((node) => node.textContent), ["best loss 0.25 @20 · best val_loss 0.4 @20", "best 0.9 @20"]);
});

test("no key that the view uses reaches the notebook", () => {
  live();
  const heard = [];
  document.body.addEventListener("keydown", (event) => heard.push(event.key));
  for (const key of ["[", "]", "b", "x", "d", "Enter"]) press(key, $('[data-path="head"]'));
  assert.deepEqual(heard, []);
});

test("messages show their line, how often they came, and the traceback on demand", () => {
  live();
  const message = $(".nbm-run-message");
  assert.match(message.querySelector("summary").textContent, /error: step 5: stop_when raised KeyError: 'x' \(cell 3, line 2: h.x\) \(3 times\)/);
  assert.equal(message.querySelector("pre").textContent, "Traceback");
  assert.match($(".nbm-foot").textContent, /buttons act between two steps/);
  assert.match($(".nbm-foot").textContent, /only weights are watched/);
  assert.match($(".nbm-run-steps").textContent, /watching costs 0.8 % · 5 updates\/s/);
});

test("silence is told, since nobody can know whether the step is long or the kernel gone", () => {
  live();
  wait(12);
  assert.match($(".nbm-foot").textContent, /nothing heard for 12 s: the step is long, or the kernel is gone/);
});

test("a page that is behind says so", () => {
  live();
  now = 10;
  listener({ kind: "tick", n: ++number, t: 2, progress: progress() }, []);
  paint();
  assert.match($(".nbm-foot").textContent, /behind by 8 s: newest values win/);
});

test("earlier runs can be cleared here and in the kernel", () => {
  live();
  button("Remove the pale curves of earlier runs of this cell").click();
  paint();
  assert.equal(sent.at(-1).kind, "clear");
  assert.equal($$(".nbm-run-pale").length, 0);
});

test("texts of a model are never taken for markup", () => {
  const name = "<img src=x onerror=alert(1)>";
  live(record({ title: [name], series: [series(name, name, "train", [1], [1])], media: [{ name, n: 1, entries: [{ step: 1, html: "" }] }], controls: [{ name, kind: "toggle", value: true, group: "", error: null }] }));
  assert.equal($("img"), null);
  assert.ok($(".nbm-run-media").textContent.includes(name));
});

test("a view joins the kernel whether the link comes before or after it", () => {
  const handlers = new Map();
  const posted = [];
  const model = { get: () => "r1", on: (kind, fn) => handlers.set(kind, fn), off: (kind) => handlers.delete(kind), send: (m) => posted.push(m) };
  show();
  const unlink = link.initialize({ model });
  assert.deepEqual(posted.map((m) => m.kind), ["hello"]);
  handlers.get("msg:custom")({ kind: "snapshot", page: posted[0].page, n: 0, t: 0, record: record({ progress: progress({ done: 77 }) }) }, []);
  paint();
  assert.match(facts(), /step 77/);
  const other = document.body.appendChild(document.createElement("div"));
  const close = render(other, record(), null);
  assert.equal(posted.filter((m) => m.kind === "hello").length, 2);
  close();
  assert.equal(posted.at(-1).kind, "bye");
  handlers.get("comm_live_update")();
  paint();
  assert.ok(button("Make one step, then pause").disabled, "the kernel was restarted");
  handlers.get("msg:custom")({ kind: "tick", n: 1, t: 0 }, []);
  paint();
  assert.ok(!button("Make one step, then pause").disabled, "it is back");
  unlink();
  paint();
  assert.ok(button("Make one step, then pause").disabled);
  assert.equal(handlers.size, 0);
});

test("cleaning up leaves nothing behind", () => {
  live();
  end();
  assert.equal(host.childElementCount, 0);
  assert.equal(globalThis.nbmLive.views.size, 0);
  assert.equal(beats.length, 0);
  assert.equal(sent.at(-1).kind, "bye");
  end = null;
});

const FINDING = ["doubt", "update/weight 0.4 head", null, "modules", "head", { label: "learning rate → 0.005", message: { kind: "set", name: "learning rate", value: 0.005 } }];

test("what is wrong stands below the title, with a button that sends what it says while the loop runs", () => {
  live(record({ findings: [["wrong", "NaN in loss from step 10", 10, "steps", "loss", null], FINDING] }));
  assert.equal($$(".nbm-bugs").length, 1);
  assert.equal($(".nbm-title").nextElementSibling, $(".nbm-bugs").parentElement);
  button("update/weight 0.4 head: learning rate → 0.005").click();
  assert.deepEqual([sent.at(-1).kind, sent.at(-1).value], ["set", 0.005]);
  button("NaN in loss from step 10: go there").click();
  assert.deepEqual([sent.at(-1).kind, sent.at(-1).step], ["at", 10]);
  button("update/weight 0.4 head: go there").click();
  paint();
  assert.equal($(".nbm-run-strip[aria-selected=true]").dataset.path, "head");
  tick({ findings: [], progress: progress() });
  assert.equal($(".nbm-bugs"), null);
});

test("without a running loop the findings are there and their remedies are not", () => {
  show(record({ progress: progress({ state: "done", ended: true }), findings: [FINDING] }), channel);
  assert.match($(".nbm-bugs").textContent, /update\/weight 0.4 head/);
  assert.ok(!$(".nbm-bugs").textContent.includes("learning rate"));
});

test("a run that is well has no bar", () => {
  live(record({ findings: [] }));
  assert.equal($(".nbm-bugs"), null);
});
