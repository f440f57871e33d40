"""Drawing for people: HTML pages, SVG plots, actions on screenshots. No torch."""
