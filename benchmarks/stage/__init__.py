"""What the benchmarks of the running service stand on: the machine, processes and their cost, simulated replicas."""
