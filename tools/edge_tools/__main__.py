"""`python -m edge_tools` is `edge-sdk`."""

from edge_tools.cli import main

main()
