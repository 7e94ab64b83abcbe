"""The terminal: output that fits its width, progress, and the parser with help that fits."""
