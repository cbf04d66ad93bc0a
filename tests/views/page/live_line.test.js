import assert from "node:assert/strict";
import { test } from "node:test";
import { Line } from "../../../nbmodule/views/frontend/live_line.js";

function make() {
  const sent = [];
  const heard = [];
  const clock = { now: 100 };
  let listener = () => {};
  const channel = { send: (m) => sent.push(m), onMessage: (fn) => ((listener = fn), () => (listener = () => {})) };
  const line = new Line({
    page: "p",
    now: () => clock.now,
    onRecord: (r) => heard.push(["record", r]),
    onTick: (t) => heard.push(["tick", t.n]),
    onDetail: (d) => heard.push(["detail", d.path]),
    onChange: () => {},
  });
  return { line, sent, heard, clock, channel, hear: (m) => listener(m, []) };
}

const snapshot = (n, progress = { state: "running", done: 1 }) => ({ kind: "snapshot", page: "p", n, t: 0, record: { progress } });
const tick = (n, progress = { state: "running", done: 1 }) => ({ kind: "tick", n, t: 0, progress });

test("a page greets, and takes messages up once it has the run", () => {
  const { line, sent, heard, channel, hear } = make();
  line.connect(channel);
  assert.deepEqual(sent, [{ kind: "hello", page: "p" }]);
  hear(tick(4));
  assert.deepEqual(heard, []);
  hear(snapshot(4));
  hear(tick(5));
  assert.deepEqual(heard.map(([kind]) => kind), ["record", "tick"]);
});

test("each message is acknowledged on receipt, whatever the page does with it", () => {
  const { line, sent, channel, hear } = make();
  line.connect(channel);
  hear(tick(1));
  hear(snapshot(1));
  hear(tick(2));
  assert.deepEqual(sent.filter((m) => m.kind === "ack").map((m) => m.n), [1, 2]);
});

test("a message that is missing makes the page greet again, not more than once a second", () => {
  const { line, sent, heard, clock, channel, hear } = make();
  line.connect(channel);
  hear(snapshot(1));
  hear(tick(3));
  hear(tick(4));
  assert.equal(sent.filter((m) => m.kind === "hello").length, 1);
  clock.now += 2;
  hear(tick(5));
  hear(tick(6));
  assert.equal(sent.filter((m) => m.kind === "hello").length, 2);
  hear(snapshot(6));
  hear(tick(7));
  assert.deepEqual(heard.at(-1), ["tick", 7]);
});

test("a page that hears nothing for long greets again, ever less often", () => {
  const { line, sent, clock, channel, hear } = make();
  const greetings = () => sent.filter((m) => m.kind === "hello").length;
  line.connect(channel);
  hear(snapshot(1));
  for (let k = 0; k < 7; k++) {
    clock.now += 1;
    line.greetAgain();
  }
  assert.equal(greetings(), 1);
  clock.now += 2;
  line.greetAgain();
  assert.equal(greetings(), 2);
  hear(snapshot(5));
  hear(tick(6));
  line.greetAgain();
  assert.equal(greetings(), 2);
  for (let k = 0; k < 300; k++) {
    clock.now += 1;
    line.greetAgain();
  }
  assert.ok(greetings() > 5 && greetings() < 20, String(greetings()));
});

test("what is meant for another page is left to it", () => {
  const { line, heard, channel, hear } = make();
  line.connect(channel);
  hear({ ...snapshot(1), page: "other" });
  hear({ kind: "detail", page: "other", path: "a" });
  hear({ kind: "detail", page: "p", path: "b" });
  assert.deepEqual(heard, [["detail", "b"]]);
});

test("a greeting without an answer is repeated, ever more rarely", () => {
  const { line, sent, clock, channel } = make();
  line.connect(channel);
  for (let half = 0; half < 120; half++) {
    clock.now += 0.5;
    line.greetAgain();
  }
  assert.equal(sent.filter((m) => m.kind === "hello").length, 6);
});

test("a press waits until the loop confirms it", () => {
  const { line, sent, clock, channel, hear } = make();
  line.connect(channel);
  hear(snapshot(0));
  for (const [kind, progress] of [
    ["pause", { state: "paused", done: 5 }],
    ["step", { state: "paused", done: 6 }],
    ["resume", { state: "running", done: 6 }],
    ["stop", { state: "stopped", done: 7, ended: true }],
  ]) {
    line.command(kind, 5);
    assert.equal(sent.at(-1).kind, kind);
    clock.now += 3;
    assert.equal(line.waited, 3);
    hear(tick(line.last + 1, kind === "resume" || kind === "step" ? { state: "paused", done: 5 } : { state: "running", done: 5 }));
    assert.ok(line.press);
    hear(tick(line.last + 1, progress));
    assert.equal(line.press, null);
    assert.equal(line.waited, 0);
  }
});

test("how far a page is behind is measured without clocks that agree", () => {
  const { line, clock, channel, hear } = make();
  line.connect(channel);
  hear({ ...snapshot(0), t: 10 });
  clock.now += 1;
  hear({ ...tick(1), t: 11 });
  assert.equal(line.lag, 0);
  clock.now += 4;
  hear({ ...tick(2), t: 12 });
  assert.equal(line.lag, 3);
});

test("a channel that is lost ends what waited, and a new one begins anew", () => {
  const { line, sent, channel, hear } = make();
  line.connect(channel);
  hear(snapshot(0));
  line.command("pause", 1);
  line.connect(null);
  assert.equal(line.press, null);
  line.command("pause", 1);
  assert.equal(sent.filter((m) => m.kind === "pause").length, 1);
  line.connect(channel);
  assert.equal(sent.at(-1).kind, "hello");
});

test("closing says farewell and hears nothing more", () => {
  const { line, sent, heard, channel, hear } = make();
  line.connect(channel);
  line.close();
  assert.equal(sent.at(-1).kind, "bye");
  hear(snapshot(0));
  assert.deepEqual(heard, []);
});
