"""One file for each chart: what it counts, as one table."""
