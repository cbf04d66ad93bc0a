"""The facts that views draw, as plain records, and the rows of every tree."""
