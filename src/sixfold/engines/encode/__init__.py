"""Media as other media: transcoded, cut, drawn, and made small for pages."""
