"""Build hook of the wheel: ship the front end as esbuild minifies it.

The repository and an editable install use the plain ES modules, and so does a wheel that is built
on a machine without esbuild (`npm ci` installs it into node_modules).
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FRONTEND = "nbmodule/views/frontend"


class FrontendHook(BuildHookInterface):
    """Replace each module and style sheet of the front end by its minified form."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Minify the files into a temporary folder and let them stand for the plain ones."""
        if version != "standard":
            return
        root = Path(self.root)
        esbuild = shutil.which("esbuild", path=str(root / "node_modules" / ".bin"))
        esbuild = esbuild or shutil.which("esbuild")
        if esbuild is None:
            self.app.display_warning("esbuild is not installed: the wheel gets the plain modules.")
            return
        self.folder = tempfile.mkdtemp()
        # A file with a default export is a widget of its own, which Python reads as it is.
        sources = [
            path
            for path in (root / FRONTEND).iterdir()
            if path.suffix in (".js", ".css") and "\nexport default" not in path.read_text()
        ]
        # Lines stay, so that `views/frontend/bundle.py` recognizes imports and exports.
        flags = ["--minify-identifiers", "--minify-syntax", "--format=esm", "--target=es2022"]
        subprocess.run(
            [esbuild, *map(str, sources), f"--outdir={self.folder}", "--charset=utf8"]
            + [*flags, "--log-level=warning"],
            check=True,
        )
        for path in sources:
            minified = str(Path(self.folder) / path.name)
            build_data["force_include"][minified] = f"{FRONTEND}/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Delete the temporary folder."""
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)
