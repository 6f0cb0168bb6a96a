"""C: runs validated programs. It never holds a reference output, a tolerance, or the candidate's Python.

HostRunner    without a GPU: the executor, in a jailed process of its own
DeviceRunner  on a GPU, in a process of its own
gpu_present   whether this machine has one
lease         to be alone on it
"""

from pallas_evo.running.device import DeviceRunner, Timed
from pallas_evo.running.gpus import driver_version, gpu_present
from pallas_evo.running.host import HostRunner
from pallas_evo.running.lease import lease

__all__ = ["DeviceRunner", "HostRunner", "Timed", "driver_version", "gpu_present", "lease"]
