"""First-party plugins. Each imports gateway.sdk and third parties, nothing else."""
