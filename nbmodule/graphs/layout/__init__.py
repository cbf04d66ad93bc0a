"""From a graph to coordinates: folded into forms, ordered in rows, placed from the inside out.

Forms and rows are made here alone, once, and travel with the view. Coordinates depend on what is
open, and are computed in two places: here for pictures and files, in
`views/frontend/graph_place.js` for a page. One engine for both was looked for:

* Python alone would have to answer each fold of a reader, which a saved page cannot ask, or place
  every opening ahead, of which a graph of n groups has up to 2**n;
* the page alone would leave `graph.save("net.svg")`, the still picture in a saved notebook and
  readers without scripts with nothing, unless an engine for JavaScript were a dependency;
* Python for the first opening and the page for all later ones is two engines still, with a jump
  where they meet.

So the two stay, short (placing and scene only; no words, no folding, no ordering), pure, and held
equal to the pixel by `tests/graphs/test_data.py`. A change is made in both, and that test says
where they part.
"""
