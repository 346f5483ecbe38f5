"""Stand-ins for what a real engine cannot be made to do on demand."""
