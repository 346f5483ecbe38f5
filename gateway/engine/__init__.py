"""Running vLLM: supervise it, prepare a model, install what it needs."""
