"""Mixed-integer linear programs, written down row by row and solved by HiGHS.

program = IntegerProgram()
x, y = program.binary(cost=3.0), program.binary(cost=2.0)
program.row({x: 1.0, y: 1.0}, at_least=1.0)
answer = program.solve()
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gnomon.errors import Infeasible, MissingExtra


class Answer(msgspec.Struct, frozen=True, eq=False):
    """What the solver found.

    Attributes:
        values: Of the variables, in order.
        cost: What they cost.
        gap: Between that and the best that may be possible, as a share.
        seconds: That the solver took.
    """

    values: NDArray[np.float64]
    cost: float
    gap: float
    seconds: float

    def chosen(self, variables: list[int]) -> int:
        """Which of several binaries is one."""
        return int(np.argmax(self.values[variables]))


class IntegerProgram:
    """Variables from 0 up and rows of bounds on their sums; the cost is the least.

    >>> program = IntegerProgram()
    >>> x, y = program.binary(cost=3.0), program.binary(cost=2.0)
    >>> program.row({x: 1.0, y: 1.0}, at_least=1.0)
    >>> program.solve().values.tolist()
    [0.0, 1.0]
    """

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._upper: list[float] = []
        self._start: list[int] = [0]
        self._index: list[int] = []
        self._value: list[float] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []

    def binary(self, cost: float = 0.0) -> int:
        """A variable that is 0 or 1; its number."""
        self._cost.append(cost)
        self._upper.append(1.0)
        return len(self._cost) - 1

    def continuous(self, cost: float = 0.0) -> int:
        """A variable from 0 up; its number."""
        self._cost.append(cost)
        self._upper.append(math.inf)
        return len(self._cost) - 1

    def row(
        self, terms: dict[int, float], *, at_least: float = -math.inf, at_most: float = math.inf
    ) -> None:
        """Bounds on a sum of variables, each times a number."""
        self._index += terms
        self._value += terms.values()
        self._start.append(len(self._index))
        self._row_lower.append(at_least)
        self._row_upper.append(at_most)

    def one_of(self, variables: list[int]) -> None:
        self.row(dict.fromkeys(variables, 1.0), at_least=1.0, at_most=1.0)

    def solve(self, *, gap: float = 1e-4, limit_s: float = 60.0) -> Answer:
        """The best answer, or after a while the best so far; the same each time.

        Args:
            gap: How far from the best it may be, as a share.
            limit_s: When to stop searching.

        Raises:
            Infeasible: There is none, or none was found in time.
        """
        try:
            import highspy
        except ImportError:
            raise MissingExtra("highspy", "solve", "solving integer programs") from None
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        for name, value in (("output_flag", False), ("threads", 1), ("random_seed", 1),
                            ("mip_rel_gap", gap), ("time_limit", limit_s)):  # fmt: skip
            solver.setOptionValue(name, value)
        solver.passModel(self._model(highspy))
        solver.run()
        info, seconds = solver.getInfo(), float(solver.getRunTime())
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            status = solver.modelStatusToString(solver.getModelStatus()).lower()
            raise Infeasible(f"no answer after {seconds:.1f} s: {status}")
        values = np.array(solver.getSolution().col_value)
        return Answer(values, float(info.objective_function_value), float(info.mip_gap), seconds)

    def _model(self, highspy: Any) -> Any:
        model = highspy.HighsLp()
        model.num_col_, model.num_row_ = len(self._cost), len(self._row_lower)
        model.col_cost_ = np.array(self._cost)
        model.col_lower_ = np.zeros(len(self._cost))
        model.col_upper_ = np.array(self._upper)
        model.row_lower_ = np.array(self._row_lower)
        model.row_upper_ = np.array(self._row_upper)
        model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        model.a_matrix_.start_ = np.array(self._start)
        model.a_matrix_.index_ = np.array(self._index)
        model.a_matrix_.value_ = np.array(self._value)
        is_binary = np.isfinite(self._upper)
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(one)] for one in is_binary]
        return model
