"""Convert models of other frameworks to modules and back; track and view unconverted ones."""
