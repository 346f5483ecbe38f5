"""The examples on a plugin's page, for the tests that run them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from gateway.settings.document import Document

PAGES = Path(__file__).parents[2] / "docs" / "plugins"


def example(plugin: str) -> tuple[dict[str, Any], list[Any]]:
    """Return the options of the first configuration on a page, and its JSON blocks in order."""
    page = (PAGES / f"{plugin}.md").read_text("utf-8")
    found = re.findall(r"^```(yaml|json)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    chains = [Document(text, {}).data["chain"] for language, text in found if language == "yaml"]
    return chains[0][0]["options"], [json.loads(text) for language, text in found if language == "json"]
