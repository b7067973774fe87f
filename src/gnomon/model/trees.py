"""Boosted trees for yes or no, by LightGBM: fitted with early stopping, kept as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from gnomon.errors import InputError, MissingExtra
from gnomon.table.atomic import atomic_file

Floats = NDArray[np.float64]


class TreeOptions(msgspec.Struct, frozen=True):
    """How trees grow.

    Attributes:
        rounds: At most so many trees.
        patience: Stop after so many without gain on validation data.
        leaves: Of one tree at most; so `depth`.
        least_samples: In one leaf.
    """

    rounds: int = 300
    patience: int = 30
    learning_rate: float = 0.05
    leaves: int = 31
    depth: int = 6
    least_samples: int = 20

    def __post_init__(self) -> None:
        sizes = (self.rounds, self.patience, self.leaves - 1, self.depth, self.least_samples)
        if min(sizes) < 1 or not 0 < self.learning_rate <= 1:
            raise InputError(
                "trees: counts are positive, leaves 2 or more, 0 < learning_rate <= 1"
            )


class Trees:
    """The probability of yes from a row of numbers. One thread, the same answer each time.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.random((400, 2))
    >>> trees = Trees.fit(x[:300], x[:300, 0] > 0.5, x[300:], x[300:, 0] > 0.5)
    >>> trees.predict([[0.9, 0.5], [0.1, 0.5]]).round().tolist()
    [1.0, 0.0]
    """

    def __init__(self, booster: Any) -> None:
        self._booster = booster
        self.features: int = booster.num_feature()
        self.count: int = booster.num_trees()

    @classmethod
    def fit(
        cls, x: ArrayLike, y: ArrayLike, x_check: ArrayLike, y_check: ArrayLike, *,
        options: TreeOptions | None = None, seed: int = 0, before: Trees | None = None,
        monotone: Sequence[int] | None = None,
    ) -> Self:  # fmt: skip
        """Grows trees until validation data gains no more.

        Args:
            x: Rows of features.
            y: Yes or no for each.
            x_check: Rows for validation.
            y_check: Their answers.
            seed: Of ties.
            before: Trees that new ones are added to.
            monotone: For each feature: 1 where more of it never makes yes less likely, -1 where
                never more likely, 0 where nothing is known.
        """
        lightgbm, options = _lightgbm(), options or TreeOptions()
        rows, wanted = _table(x), np.asarray(y, float).reshape(-1)
        rows_check, wanted_check = _table(x_check), np.asarray(y_check, float).reshape(-1)
        if len(rows) != len(wanted) or len(rows_check) != len(wanted_check) or not len(rows):
            raise InputError(f"{len(rows)} rows and {len(wanted)} answers to fit trees to")
        settings = {
            "objective": "binary", "learning_rate": options.learning_rate, "verbosity": -1,
            "num_leaves": options.leaves, "max_depth": options.depth, "num_threads": 1,
            "min_data_in_leaf": min(options.least_samples, max(1, len(rows) // 4)),
            "monotone_constraints": [] if monotone is None else list(monotone), "max_bin": 63,
            "seed": seed, "deterministic": True, "force_row_wise": True,
        }  # fmt: skip
        data = lightgbm.Dataset(rows, wanted, params=settings, free_raw_data=False)
        callbacks, checks = [], []
        if len(rows_check):
            checks = [data.create_valid(rows_check, wanted_check)]
            callbacks = [lightgbm.early_stopping(options.patience, verbose=False)]
        grown = lightgbm.train(
            settings, data, options.rounds, valid_sets=checks, callbacks=callbacks,
            init_model=None if before is None else before._booster,
        )  # fmt: skip
        # What grew after the best round is dropped, so that text and object are the same trees.
        return cls.from_text(grown.model_to_string(num_iteration=grown.best_iteration or -1))

    def predict(self, x: ArrayLike) -> Floats:
        """The probability of yes for each row."""
        rows = _table(x)
        if rows.shape[1] != self.features:
            raise InputError(f"{rows.shape[1]} features; the trees know {self.features}")
        if not len(rows):
            return np.empty(0)
        return np.asarray(self._booster.predict(rows, num_threads=1), float)

    def text(self) -> str:
        return str(self._booster.model_to_string())

    @classmethod
    def from_text(cls, text: str, *, where: str | None = None) -> Self:
        lightgbm = _lightgbm()
        # LightGBM ends the process on some broken texts, so what it could stumble on is checked.
        if not text.startswith("tree\n") or "\nend of trees" not in text:
            raise InputError("holds no trees", where=where, hint="was the file cut short?")
        try:
            return cls(lightgbm.Booster(model_str=text))
        except lightgbm.basic.LightGBMError as error:
            raise InputError(f"holds no trees: {error}", where=where) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        with atomic_file(path) as file:
            file.write(self.text().encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        try:
            text = Path(path).read_text()
        except OSError as error:
            raise InputError(error.strerror or str(error), where=os.fspath(path)) from None
        except UnicodeDecodeError:
            raise InputError("holds no trees", where=os.fspath(path)) from None
        return cls.from_text(text, where=os.fspath(path))


def _table(x: ArrayLike) -> NDArray[Any]:
    rows = np.asarray(x)
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(float)
    if rows.ndim != 2:
        raise InputError(f"rows of features are a table, not {rows.ndim} axes")
    return rows


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise MissingExtra("lightgbm", "learn", "boosted trees") from None
    return lightgbm
