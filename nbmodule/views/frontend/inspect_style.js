// How the panes of an inspection stand beside each other, on the colors of the view around them.

const RULES = [
  ".nbm-panes{display:flex;flex:1 1 auto;min-width:0;height:440px}",
  ".nbm-panes.nbm-tall{height:92vh}",
  ".nbm-pane{min-width:0;flex:0 1 auto;display:flex;flex-direction:column;overflow:hidden}",
  ".nbm-pane[hidden],.nbm-divider[hidden]{display:none}",
  ".nbm-pane>.nbm-view{display:flex;flex-direction:column;min-height:0;flex:1 1 auto;max-width:none;padding:0}",
  ".nbm-pane .nbm-facts,.nbm-pane [title='Show the whole height']{display:none}",
  ".nbm-pane .nbm-title{overflow:hidden}.nbm-pane .nbm-tools{min-width:0}",
  ".nbm-pane .nbm-body{flex:1 1 auto;min-height:0;overflow:auto}",
  ".nbm-pane .nbm-main{max-height:none}",
  ".nbm-pane .nbm-foot{flex:0 0 auto}",
  ".nbm-pane .nbm-gsplit{flex-direction:column}",
  ".nbm-divider{flex:0 0 9px;cursor:col-resize;touch-action:none;position:relative}",
  ".nbm-divider::before{content:'';position:absolute;inset:0 4px;background:var(--line)}",
  ".nbm-divider:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}",
  ".nbm-detailpane{padding:2px 4px 8px 8px;overflow:auto;display:block}",
  ".nbm-detailpane:focus-visible{outline:2px solid var(--accent);outline-offset:-2px}",
  ".nbm-detailpane h3{font-size:12px;font-weight:400;color:var(--quiet);margin:10px 0 2px}",
  ".nbm-code{margin:0;font-size:11.5px;line-height:1.45;overflow:auto;max-height:340px;display:grid;grid-template-columns:max-content 1fr;gap:0 10px;background:none}",
  ".nbm-code span{white-space:pre;color:var(--jp-ui-font-color0,var(--vscode-editor-foreground,var(--fg)))}",
  ".nbm-view .nbm-code span.nbm-lineno{color:var(--quiet);text-align:right;user-select:none}",
  "@media print{.nbm-panes{display:block;height:auto}.nbm-pane,.nbm-pane[hidden]{display:block;overflow:visible}.nbm-divider{display:none}}",
];

/** The style sheet of the panes. */
export const INSPECT_STYLES = RULES.join("\n");
