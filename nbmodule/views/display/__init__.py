"""One value on the screen, in the form that the place can show."""
