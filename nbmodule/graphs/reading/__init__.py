"""From a function to a graph: traced for shapes only, its jaxpr read into nodes and groups."""
