"""Bulk work in units: what must be done many times, on this machine's cores or on a cluster's.

units.py has the words, run.py the loop that every engine shares, ledger.py what remembers which units are done. The
engines are here.py (this process), local.py (processes of this machine) and on_ray.py (a Ray cluster).
"""
