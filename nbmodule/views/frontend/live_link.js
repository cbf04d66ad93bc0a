// The script of the widget that is never shown: it joins the views of one run in the page to the kernel.
// It stands alone, because it travels with every run; the views have their renderer in the saved output.

/**
 * What the views and the links of a page know of each other, by run: a view that is drawn later finds its channel, and a
 * link that comes later finds its views.
 * @typedef {{ channels: Map<string, any>, views: Map<string, Set<(channel: any) => void>> }} Registry
 */

/** @param {{ model: any }} widget */
function initialize({ model }) {
  const page = /** @type {any} */ (globalThis);
  /** @type {Registry} */
  const live = (page.nbmLive ??= { channels: new Map(), views: new Map() });
  const run = model.get("run");
  const listeners = new Set();
  let isLive = true;
  const tell = (/** @type {any} */ found) => {
    isLive = Boolean(found);
    if (isLive) live.channels.set(run, channel);
    else if (live.channels.get(run) === channel) live.channels.delete(run);
    for (const connect of live.views.get(run) ?? []) connect(found);
  };
  // The widget manager says that the kernel was restarted, but not whether it is gone or back; a message says it is.
  const lost = () => tell(null);
  const hear = (/** @type {any} */ content, /** @type {DataView[]} */ buffers) => {
    if (!isLive) tell(channel);
    for (const listener of listeners) listener(content, buffers);
  };
  const channel = {
    send: (/** @type {any} */ message) => model.send(message),
    onMessage: (/** @type {any} */ listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
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
