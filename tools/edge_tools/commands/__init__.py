"""One file a command; `edge_tools.cli` registers them."""
