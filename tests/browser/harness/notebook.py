"""A notebook that is open in JupyterLab or Notebook 7, driven through the application's own
objects.

The server is started so that the front end hands out `window.jupyterapp`. Asking that object is
faster than clicking in menus, holds over releases, and tells for certain when a kernel is idle.
"""

from __future__ import annotations

import ast
import json
import time
from typing import TYPE_CHECKING, Any

from harness.page import Page
from harness.server import HarnessError, LabServer

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as PlaywrightPage

# Seconds that each wait may take.
TIMEOUT = 60.0
_SCOPE = """
const app = window.jupyterapp; const panel = app && app.shell.currentWidget;
const context = panel && panel.context; const notebook = panel && panel.content;
const session = context && context.sessionContext && context.sessionContext.session;
const kernel = session && session.kernel;
"""


class NotebookPage(Page):
    """One open notebook. Cells are counted from 0, Markdown cells included."""

    def __init__(self, page: PlaywrightPage, server: LabServer, path: str) -> None:
        super().__init__(page)
        self.server, self.path = server, path
        if server.app == "notebook":
            self.allow_console("reading 'schema'")  # Notebook 7.6 itself, on an empty notebook too

    # Running

    def run_all(self) -> None:
        """Run every cell."""
        before = self._executions()
        self.js("app.commands.execute('notebook:run-all-cells'); return null;")
        self.wait_done(before)

    def run_cell(self, index: int, *, wait: bool = True) -> None:
        """Run one cell; with `wait=False` come back while the kernel is busy."""
        before = self._executions()
        self.js(
            "notebook.deselectAll(); notebook.activeCellIndex = arg;"
            "app.commands.execute('notebook:run-cell'); return null;",
            index,
        )
        if wait:
            self.wait_done({index: before[index]})

    def set_source(self, index: int, source: str) -> None:
        """Write other code into a cell, as if it had been typed."""
        self.js(
            "notebook.widgets[arg[0]].model.sharedModel.setSource(arg[1]); return null;",
            [index, source],
        )

    def interrupt(self) -> None:
        """What the stop button does."""
        self.js("await kernel.interrupt(); return null;")

    def restart(self) -> None:
        """Restart the kernel; the outputs stay."""
        self.js("await kernel.restart(); return null;")
        self.wait_idle()

    def save(self) -> dict[str, Any]:
        """Save the notebook; gives what now lies on disk."""
        self.js("await context.save(); return null;")
        return json.loads((self.server.root / self.path).read_text())

    def reload(self) -> None:
        """Reload the page: kernel and notebook go on, busy or not, the front end begins anew."""
        self.page.reload(wait_until="domcontentloaded")
        self.wait_js("!!notebook && !!notebook.widgets && context.isReady && !!kernel")

    def reopen(self) -> None:
        """Come back the next day: save, end the kernel, load the page again with a fresh kernel."""
        self.save()
        self.shutdown()
        self.reload()
        self.wait_ready()

    def shutdown(self) -> None:
        """End this notebook's kernel, if it has one."""
        for session in self.server.api("GET", "/api/sessions"):
            if session["path"] == self.path:
                self.server.api("DELETE", f"/api/sessions/{session['id']}")

    def set_theme(self, *, dark: bool) -> None:
        """Switch between Lab's own light and dark theme."""
        name = "JupyterLab Dark" if dark else "JupyterLab Light"
        self.js(
            "await app.commands.execute('apputils:change-theme', {theme: arg}); return null;", name
        )
        self.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light", arg="false" if dark else "true"
        )

    # Waiting

    def wait_ready(self) -> None:
        """Wait until the notebook is drawn and its kernel idle."""
        self.wait_js(
            "!!notebook && !!notebook.widgets && context.isReady && !!kernel && kernel.status === 'idle'"
        )

    def wait_idle(self) -> None:
        """Wait until the kernel has nothing to do.

        Right after `interrupt` or `run_cell(wait=False)` it may still, or not yet, be said to be
        idle: wait for what the cell writes (`wait_text`) instead.
        """
        self.wait_js("kernel && kernel.status === 'idle'")

    def wait_done(self, before: dict[int, int | None]) -> None:
        """Wait until each cell of `before` has another execution count than there and the kernel is
        idle.
        """
        self.wait_js(
            "kernel && kernel.status === 'idle' && Object.entries(arg).every(([i, n]) => {"
            " const m = notebook.widgets[i].model;"
            " return m.executionCount !== null && m.executionCount !== n && m.executionState !== 'running'; })",
            {str(i): n for i, n in before.items()},
        )

    def wait_text(self, index: int, text: str) -> None:
        """Wait until the outputs of a cell hold a text."""
        self.wait_js(
            "JSON.stringify(notebook.widgets[arg[0]].model.sharedModel.getOutputs()).includes(arg[1])",
            [index, json.dumps(text)[1:-1]],
        )

    # Looking

    @property
    def cell_count(self) -> int:
        """How many cells the notebook has; a key that a view swallows leaves it as it is."""
        return self.js("return notebook.widgets.length;")

    def cell(self, index: int) -> Locator:
        """One cell, input and output."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)

    def outputs(self, index: int) -> Locator:
        """The drawn outputs of one cell."""
        return self.cell(index).locator(".jp-OutputArea-output")

    def text(self, index: int) -> str:
        """All text of a cell's outputs: streams, errors and the plain form of displays."""
        parts = []
        outputs = "return notebook.widgets[arg].model.sharedModel.getOutputs();"
        for output in self.js(outputs, index):
            if output["output_type"] == "stream":
                parts.append("".join(output["text"]))
            elif output["output_type"] == "error":
                parts.append(f"{output['ename']}: {output['evalue']}")
            else:
                parts.append("".join(output.get("data", {}).get("text/plain", "")))
        return "".join(parts)

    # The kernel and the page's own objects

    def kernel_eval(self, expression: str) -> Any:
        """Value of a Python expression in the kernel, by way of JSON; the kernel must be idle."""
        reply = self.js(
            "const future = kernel.requestExecute({code: '', silent: true, store_history: false,"
            " user_expressions: {r: arg}}); return (await future.done).content.user_expressions.r;",
            f"__import__('json').dumps({expression}, default=str)",
        )
        if reply["status"] != "ok":
            raise HarnessError(f"{reply['ename']}: {reply['evalue']}")
        return json.loads(ast.literal_eval(reply["data"]["text/plain"]))

    def kernel_wait(self, expression: str) -> Any:
        """Ask a Python expression of the kernel until it is true; gives its value."""
        deadline = time.monotonic() + TIMEOUT
        while not (value := self.kernel_eval(expression)):
            if time.monotonic() > deadline:
                raise HarnessError(f"never true in the kernel: {expression} (it was {value!r})")
        return value

    def js(self, body: str, arg: Any = None) -> Any:
        """Run JavaScript with `app, panel, context, notebook, session, kernel` and `arg` in scope."""
        return self.page.evaluate(f"async (arg) => {{ {_SCOPE} {body} }}", arg)

    def wait_js(self, condition: str, arg: Any = None) -> None:
        """Wait until a JavaScript expression, with the names of `js` in scope, is true."""
        self.page.wait_for_function(
            f"(arg) => {{ {_SCOPE} return ({condition}); }}",
            arg=arg,
            timeout=1000 * TIMEOUT,
            polling=50,
        )

    def _executions(self) -> dict[int, int | None]:
        counts = self.js(
            "return notebook.widgets.map(c => [c.model.type === 'code' && !!c.model.sharedModel.source.trim(),"
            " c.model.executionCount ?? null]);"
        )
        return {i: count for i, (runs, count) in enumerate(counts) if runs}

    def close(self) -> None:
        """End the kernel and close the page."""
        self.shutdown()
        super().close()
