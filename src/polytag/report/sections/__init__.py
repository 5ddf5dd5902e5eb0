"""The parts of a report, one file per topic; each adds what it can say about the evidence and leaves out the rest."""
