"""Intervals that say how sure a share, a mean or a median is, in Python and as the same formula in SQL."""

import math

Z_95 = 1.959963984540054


def wilson(successes: int, trials: int, z: float = Z_95) -> tuple[float, float] | None:
    """The Wilson score interval of a share; None without trials.

    Unlike the usual p ± z·s it stays inside 0..1 and is honest for few trials and for shares of 0 and 1.
    """
    if trials <= 0:
        return None
    share = successes / trials
    centre = share + z * z / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)


def share_sql(successes: str, trials: str, name: str) -> str:
    """Three columns `<name>`, `<name>_low`, `<name>_high`: the share and its Wilson interval; NULL without trials."""
    k, n = f"({successes})::DOUBLE", f"NULLIF({trials}, 0)::DOUBLE"
    zz = Z_95 * Z_95
    spread = f"{Z_95} * sqrt(({k} / {n}) * (1 - {k} / {n}) / {n} + {zz} / (4 * {n} * {n}))"
    return (
        f"{k} / {n} AS {name}, "
        f"GREATEST(({k} / {n} + {zz} / (2 * {n}) - {spread}) / (1 + {zz} / {n}), 0) AS {name}_low, "
        f"LEAST(({k} / {n} + {zz} / (2 * {n}) + {spread}) / (1 + {zz} / {n}), 1) AS {name}_high"
    )


def mean_sql(value: str, name: str) -> str:
    """Three columns: the mean and its 95 % interval (normal; NULL below two values)."""
    spread = f"{Z_95} * stddev_samp({value}) / sqrt(COUNT({value}))"
    return (
        f"AVG({value}) AS {name}, "
        f"CASE WHEN COUNT({value}) > 1 THEN GREATEST(AVG({value}) - {spread}, 0) END AS {name}_low, "
        f"CASE WHEN COUNT({value}) > 1 THEN AVG({value}) + {spread} END AS {name}_high"
    )


def median_sql(value: str, name: str) -> str:
    """Three columns: the median and its 95 % interval by order statistics (NULL below six values)."""
    sorted_values = f"list_sort(list({value}) FILTER ({value} IS NOT NULL))"
    n = f"COUNT({value})"
    low = f"GREATEST(floor({n} / 2.0 - {Z_95} * sqrt({n}) / 2), 1)::BIGINT"
    high = f"LEAST(ceil({n} / 2.0 + {Z_95} * sqrt({n}) / 2) + 1, {n})::BIGINT"
    return (
        f"quantile_cont({value}, 0.5) AS {name}, "
        f"CASE WHEN {n} >= 6 THEN {sorted_values}[{low}] END AS {name}_low, "
        f"CASE WHEN {n} >= 6 THEN {sorted_values}[{high}] END AS {name}_high"
    )
