"""Records as text, as HTML, and as what the page reads."""
