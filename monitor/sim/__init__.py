"""A scriptable vLLM without a model: what the demo, the tests and the benchmarks measure against."""

from monitor.sim.behaviour import Behaviour, Fault, FaultKind
from monitor.sim.model import Drafter, Target
from monitor.sim.server import ServerConfig, SimulatedServer

__all__ = ["Behaviour", "Drafter", "Fault", "FaultKind", "ServerConfig", "SimulatedServer", "Target"]
