"""The kinds of source, one file each; a module here that defines `SOURCE` is found by the door."""
