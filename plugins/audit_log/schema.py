"""The JSON Schema of the log, made from what writes it.

python -m plugins.audit_log.schema > docs/audit.schema.json
"""

from __future__ import annotations

import json
import sys
from typing import Any, get_type_hints

import msgspec

from gateway.sdk import Hit
from plugins.audit_log.entry import Gap, Line


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line in the file, chain included."""
    hit = msgspec.defstruct("Hit", list(get_type_hints(Hit).items()))
    _, parts = msgspec.json.schema_components([Gap, Line, hit], ref_template="#/$defs/{name}")
    digest = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    links = {
        "chain": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
        "seq": {"type": "integer", "minimum": 1},
        **dict.fromkeys(("prev", "hash", "hmac"), digest),
    }
    for form in (parts["Line"], parts["Gap"]):
        form["properties"] |= links
        form["required"] = [*form["required"], "chain", "seq", "prev"]
        form["oneOf"] = [{"required": ["hash"]}, {"required": ["hmac"]}]
        form["additionalProperties"] = False
    parts["Line"]["properties"]["hits"]["items"] = {"$ref": "#/$defs/Hit"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of Sluice's audit log",
        "anyOf": [{"$ref": "#/$defs/Line"}, {"$ref": "#/$defs/Gap"}],
        "$defs": parts,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(schema(), indent=1) + "\n")
