"""Where pieces of work run: this process, child processes or a cluster."""
