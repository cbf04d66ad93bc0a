// Written by tools/make_types.py from nbmodule/views/renderers/columns.py. Do not edit.

/** Title and classes of the columns that a reader sees, by view and name. */
export const COLUMNS = {
  modules: {
    class: { title: "", cls: "class drop6" },
    parameters: { title: "", cls: "right drop3" },
    share: { title: "", cls: "drawn drop1" },
    flow: { title: "", cls: "mono drop2" },
    histogram: { title: "", cls: "drawn drop1" },
    variables: { title: "", cls: "drop1" },
  },
  variables: {
    type: { title: "", cls: "mono" },
    bytes: { title: "", cls: "right drop2" },
    histogram: { title: "", cls: "drawn drop1" },
    value: { title: "", cls: "number drop3" },
  },
  calls: {
    flow: { title: "in → out", cls: "mono" },
    time: { title: "time", cls: "right time drop3" },
    own: { title: "own", cls: "number drop1" },
    axis: { title: "", cls: "onaxis drop4" },
    spread: { title: "mean ± std", cls: "number drop5" },
    histogram: { title: "histogram", cls: "drawn drop2" },
  },
  difference: {
    a: { title: "a", cls: "mono" },
    b: { title: "b", cls: "mono drop1" },
    change: { title: "change", cls: "right time" },
  },
  comparison: {
    given: { title: "input", cls: "drop2" },
    change: { title: "off by", cls: "right time" },
    largest: { title: "largest", cls: "mono drop1" },
  },
  profile: {
    share: { title: "share", cls: "right number" },
    time: { title: "time", cls: "drawn" },
    forward: { title: "forward", cls: "right number drop2" },
    backward: { title: "backward", cls: "right number drop2" },
    optimizer: { title: "optimizer", cls: "right number drop1" },
    rest: { title: "rest", cls: "right number drop1" },
    speed: { title: "FLOP/s", cls: "right number drop2" },
  },
};
