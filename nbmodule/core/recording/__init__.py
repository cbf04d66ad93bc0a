"""Who is recording, and what: calls and values on their way to a log."""
