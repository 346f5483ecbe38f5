"""The example on a plugin's page is what happens: the request, what the engine gets, and the answer."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.sdk import Plugin
from gateway.testing import play
from plugins.length import Length
from plugins.presets import Presets
from plugins.system_prompt import SystemPrompt

PAGES = Path(__file__).parents[2] / "docs/plugins"


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", (PAGES / f"{page}.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("page", "plugin", "answer"),
    [
        (
            "presets",
            Presets(
                Presets.Options.model_validate(yaml.safe_load(blocks("presets", "yaml")[0])["chain"][0]["options"])
            ),
            "Yes, within 14 days.",
        ),
        (
            "system_prompt",
            SystemPrompt(
                SystemPrompt.Options(
                    text="You answer for Acme, in three sentences at most, and never name a competitor.",
                    position="merge",
                )
            ),
            "Sure: you answer for Acme, in three sentences at most, and never name a competitor.",
        ),
        ("length", Length(Length.Options(max_prompt_tokens=24, strategy="semantic")), "Form seven."),
    ],
)
async def test_the_example_of_a_page_is_what_happens(page: str, plugin: Plugin, answer: str, stream: bool) -> None:
    asked, sent, answered = (json.loads(block) for block in blocks(page, "json"))
    played = await play(plugin, {**asked, "stream": stream}, [answer[:9], answer[9:]])
    assert played.request is not None
    request: dict[str, Any] = {
        name: value for name, value in played.request.items() if name not in {"stream", "sluice"}
    }
    assert request == sent
    assert played.shown == answered["choices"][0]["message"]["content"]
    assert {**played.extra, **({"tags": played.tags} if played.tags else {})} == answered.get("sluice", {})


@pytest.mark.parametrize("plugin", [Length, SystemPrompt])
def test_the_configuration_of_a_page_is_valid(plugin: type[Plugin]) -> None:
    page = plugin.__module__.split(".")[1]
    chain = yaml.safe_load(blocks(page, "yaml")[0])["chain"]
    (options,) = (entry["options"] for entry in chain if entry["plugin"] == page)
    plugin(plugin.Options.model_validate(options))
