"""C: runs validated programs. It never holds a reference output, a tolerance, or the candidate's Python.

HostRunner    without a GPU: the executor, in a jailed process of its own
DeviceRunner  on a GPU, in a process of its own
gpu_present   whether this machine has one
"""

from pallas_evo.running.device import DeviceRunner, driver_version, gpu_present
from pallas_evo.running.host import HostRunner

__all__ = ["DeviceRunner", "HostRunner", "driver_version", "gpu_present"]
