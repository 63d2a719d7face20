"""Checks an Envoy configuration for everything that tokengate's README requires, and says what to write instead.

`node` reads files, `parts` finds the filter and what surrounds it, the `check_…` modules look at one part each,
`checks` is the table of them all, `cli` prints. Nothing here asks a network or changes a file.
"""
