"""Where requests go: engine state, choice, health, pool and the HTTP client."""
