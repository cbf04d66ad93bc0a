// The line between a page and the run: greeting, receipts, presses that wait to be confirmed. Never touches the document.

/**
 * @typedef {import("./base.js").Channel} Channel
 * @typedef {import("./live_store.js").Progress} Progress
 * @typedef {{ kind: string, since: number }} Press
 */

export const UNCONFIRMED_AFTER = 2;
const GREET_AGAIN_AFTER = 1;
const LOST_AFTER = 8;
const FIRST_PATIENCE = 2;
const LONGEST_PATIENCE = 30;

/** The reply that a press waits for. */
const CONFIRMED_BY = {
  pause: (/** @type {Progress} */ p) => p.state === "paused",
  resume: (/** @type {Progress} */ p) => p.state !== "paused",
  step: (/** @type {Progress} */ p, /** @type {number} */ done) => p.state === "paused" && p.done > done,
  stop: (/** @type {Progress} */ p) => p.ended || p.state === "stopped",
};

/** One page's side of the line; `now` is in seconds and given in, so that time can be tested. */
export class Line {
  /**
   * @param {{ onRecord: (record: import("./messages.js").RunData) => void, onTick: (tick: import("./messages.js").Tick) => void,
   *   onDetail: (detail: import("./messages.js").DetailData) => void, onReplay: (answer: import("./messages.js").Replay) => void,
   *   onChange: () => void, now: () => number, page: string }} listener
   */
  constructor(listener) {
    this.listener = listener;
    this.last = -1;
    this.isWaiting = false;
    this.greeted = -Infinity;
    this.patience = FIRST_PATIENCE;
    /** @type {Channel | null} */
    this.channel = null;
    /** @type {(Press & { done: number }) | null} */
    this.press = null;
    this.lag = 0;
    this.offset = Infinity;
    this.heardAt = -Infinity;
    this.off = () => {};
  }

  /**
   * Take up a channel, or lose it.
   * @param {Channel | null} channel
   * @param {boolean} [ended] whether the run is over: then nothing new is to be heard
   */
  connect(channel, ended = false) {
    this.off();
    this.off = () => {};
    this.channel = channel;
    this.isWaiting = false;
    this.press = null;
    this.greeted = this.heardAt = -Infinity;
    if (channel) {
      this.off = channel.onMessage((message) => this.hear(/** @type {import("./messages.js").RunHeard} */ (/** @type {unknown} */ (message))));
      if (!ended) this.greet();
    }
    this.listener.onChange();
  }

  /** A greeting that comes before the kernel listens is lost, and so may be messages when many come; call this now and then. */
  greetAgain() {
    if (!this.isWaiting && this.silence < LOST_AFTER) return;
    if (this.listener.now() - this.greeted < this.patience) return;
    this.patience = Math.min(2 * this.patience, LONGEST_PATIENCE);
    this.isWaiting = false;
    this.greet();
  }

  greet() {
    const now = this.listener.now();
    if (this.isWaiting || now - this.greeted < GREET_AGAIN_AFTER) return;
    this.isWaiting = true;
    this.greeted = now;
    this.send({ kind: "hello" });
  }

  /** @param {import("./messages.js").Message} message */
  send(message) {
    this.channel?.send({ ...message, page: this.listener.page });
  }

  /** @param {import("./messages.js").RunHeard} message */
  hear(message) {
    const { listener } = this;
    this.heardAt = listener.now();
    if (message.kind === "snapshot" && message.page === listener.page) {
      this.isWaiting = false;
      this.patience = FIRST_PATIENCE;
      this.last = message.n;
      this.measure(message.t);
      listener.onRecord(message.record);
      this.confirm(message.record.progress);
    } else if (message.kind === "tick") {
      this.send({ kind: "ack", n: message.n });
      this.measure(message.t);
      if (this.isWaiting) return;
      if (message.n !== this.last + 1) {
        this.greet();
        return;
      }
      this.last = message.n;
      listener.onTick(message);
      this.confirm(message.progress);
    } else if (message.kind === "detail" && message.page === listener.page) listener.onDetail(message);
    else if (message.kind === "replay" && message.page === listener.page) listener.onReplay(message);
    listener.onChange();
  }

  /**
   * Remember a press until the loop confirms it.
   * @param {keyof typeof CONFIRMED_BY} kind
   * @param {number} done steps that are done
   */
  command(kind, done) {
    this.press = { kind, since: this.listener.now(), done };
    this.send({ kind });
    this.listener.onChange();
  }

  /** @param {Progress | undefined} progress */
  confirm(progress) {
    if (!this.press || !progress) return;
    const kind = /** @type {keyof typeof CONFIRMED_BY} */ (this.press.kind);
    if (progress.ended || CONFIRMED_BY[kind](progress, this.press.done)) this.press = null;
  }

  /** Seconds since the last message. */
  get silence() {
    return this.listener.now() - (Number.isFinite(this.heardAt) ? this.heardAt : this.greeted);
  }

  /** Seconds that a press waits already. */
  get waited() {
    return this.press ? this.listener.now() - this.press.since : 0;
  }

  /**
   * Without clocks that agree the smallest difference ever seen stands for a message that came at once.
   * @param {number} sentAt
   */
  measure(sentAt) {
    const offset = this.listener.now() - sentAt;
    this.offset = Math.min(this.offset, offset);
    this.lag = offset - this.offset;
  }

  /** End it, and say so. */
  close() {
    this.send({ kind: "bye" });
    this.off();
    this.channel = null;
  }
}
