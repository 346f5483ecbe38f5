"""The wire without I/O: OpenAI fields we touch, where text sits, SSE framing."""
