"""Reports and datasets of what was judged: read from an archive or a ShinkaEvolve run, shown or written, never changed.

- `readers` turn either into `views`, frozen plain values; all that shows them speaks views only.
- `terminal`, `html` and `plots` show them; `jsonable` makes them JSON.
- `dataset` and `kernelbook` write the rows of an export.

Nothing here opens a database file: the command line does, and hands over what it opened.
"""
