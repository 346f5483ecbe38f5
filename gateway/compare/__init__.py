"""Two targets answer the same cases: what each got right, where they differ, how long they took, what it cost."""
