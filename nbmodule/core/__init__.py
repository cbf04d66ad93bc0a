"""Variables, frames, the one walk, modules and transforms: the base of all other packages."""
