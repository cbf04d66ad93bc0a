"""From coordinates to a picture, a page, a text or a file."""
