// The script of the widget that is never shown: it joins the views of one run in the page to the kernel.
// It stands alone, because it travels with every run; the views have their renderer in the saved output.

/**
 * The views and the links of a page, by run: a view that is drawn later finds its channel, and a
 * link that comes later finds its views.
 * @typedef {NonNullable<import("./messages.js").Page["nbmLive"]>} Registry
 * @typedef {import("./base.js").Channel} Channel
 * @typedef {Parameters<Channel["onMessage"]>[0]} Listener
 */

/** @param {{ model: import("./messages.js").WidgetModel }} widget */
function initialize({ model }) {
  const page = /** @type {import("./messages.js").Page} */ (globalThis);
  /** @type {Registry} */
  const live = (page.nbmLive ??= { channels: new Map(), views: new Map() });
  const run = model.get("run");
  const listeners = /** @type {Set<Listener>} */ (new Set());
  let isLive = true;
  const tell = (/** @type {Channel | null} */ found) => {
    isLive = Boolean(found);
    if (isLive) live.channels.set(run, channel);
    else if (live.channels.get(run) === channel) live.channels.delete(run);
    for (const connect of live.views.get(run) ?? []) connect(found);
  };
  // The widget manager says that the kernel was restarted, but not whether it is gone or back; a message says it is.
  const lost = () => tell(null);
  /** @type {Listener} */
  const hear = (content, buffers) => {
    if (!isLive) tell(channel);
    for (const listener of listeners) listener(content, buffers);
  };
  /** @type {Channel} */
  const channel = {
    send: (message) => model.send(message),
    onMessage: (listener) => {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
  model.on("msg:custom", hear);
  model.on("comm_live_update", lost);
  tell(channel);
  return () => {
    model.off("msg:custom", hear);
    model.off("comm_live_update", lost);
    tell(null);
  };
}

export default { initialize, render() {} };
