from __future__ import annotations

from tests.conformance.solver import SolverSuite


class TestSuite(SolverSuite):
    algorithm = "spt"
