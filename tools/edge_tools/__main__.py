"""`python -m edge_tools` is `edge-sdk`."""

from edge_tools.start import main

main()
