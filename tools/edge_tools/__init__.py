"""The command line, measurements and evaluation around edge-sdk."""
