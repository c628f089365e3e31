"""edge-sdk doctor: can this machine run the product, and is the datastore well?

Nothing in this room imports a native library: one that was built for another processor kills whoever imports it, and a
doctor that dies of the disease says nothing. Everything native happens in child processes.
"""

from edge_tools.doctor.examination import examine
from edge_tools.doctor.finding import Finding, Verdict

__all__ = ["Finding", "Verdict", "examine"]
