"""Running vLLM: install it, prepare a model, build its command, keep it alive, take it down without remains."""
