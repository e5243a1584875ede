"""Style transfer without weights: painters, printers and graders over one analysis of the source."""
