"""Reports and datasets of what was judged: read from an archive or a ShinkaEvolve run, shown or written, never changed.

- `archived` and `shinka` turn either into `views`, frozen plain values; all that shows them speaks views only.
- `terminal` and `terminal_program` (made of `screen` and `charts`), `html` and `plots` show them; `text.jsonable` makes
  them JSON.
- `dataset` and `kernelbook` write the rows of an export.

Nothing here opens a database file: the command line does, and hands over what it opened.
"""
