"""Facts in; metrics and logs out."""
