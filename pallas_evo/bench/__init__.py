"""`pallas_evo bench`: what the judge itself is worth on this machine, as one JSON record and a Markdown table.

suite       every seed through all gates: verdict, time against XLA, share of the roofline, what binds it
self        each seed against itself, compiled twice, once in each slot: how far from 1.00 a score of 1.00 is
throughput  judged candidates a minute, latency, exclusive GPU seconds, several at once; and what bad ones cost
wall        what a wall clock would have said of the same calls

record.py keeps the record on the disk as results come, so that a run that was killed is readable and goes on;
running.py runs the parts; table.py turns a record into tables, which is how no figure of one is typed by hand.
"""

from __future__ import annotations

from pallas_evo.bench.record import Record
from pallas_evo.bench.running import PARTS, Instruments, Plan, run_bench

__all__ = ["PARTS", "Instruments", "Plan", "Record", "run_bench"]
