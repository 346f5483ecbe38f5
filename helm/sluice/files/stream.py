"""What `helm test` does: one streamed request from inside the cluster; without a key, that one is asked for."""

import json
import os
import sys
import urllib.error
import urllib.request

gateway, model, key = os.environ["GATEWAY"], os.environ["MODEL"], os.environ.get("API_KEY")

with urllib.request.urlopen(f"{gateway}/readyz", timeout=10) as answer:
    print("ready:", answer.status)

body = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16, "stream": True}
request = urllib.request.Request(
    f"{gateway}/v1/chat/completions",
    json.dumps(body).encode(),
    {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})},
)
try:
    with urllib.request.urlopen(request, timeout=120) as answer:
        events = [line[6:].strip() for line in answer if line.startswith(b"data: ")]
except urllib.error.HTTPError as refusal:
    if key is None and refusal.code == 401:
        print("without a key: 401, as it should be. For a streamed answer set test.apiKeySecret.")
        sys.exit(0)
    sys.exit(f"{refusal.code}: {refusal.read().decode(errors='replace')}")
if events[-1:] != [b"[DONE]"]:
    sys.exit(f"the stream did not end as it should; its last events: {events[-3:]}")
chunks = [json.loads(event) for event in events[:-1]]
text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk.get("choices", []))
print(f"{len(chunks)} chunks: {text!r}")
sys.exit(0 if text else "the answer was empty")
