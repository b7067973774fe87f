"""Jobs of a cluster: tables and Slurm accounting."""
