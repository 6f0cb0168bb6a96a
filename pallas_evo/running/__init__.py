"""C: runs validated programs. It never holds a reference output, a tolerance, or the candidate's Python.

HostRunner  without a GPU: the executor, in a jailed process of its own
"""

from pallas_evo.running.host import HostRunner

__all__ = ["HostRunner"]
