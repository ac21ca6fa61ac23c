"""Bars of rates, one panel of each file of results."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_BARS_HIGH = 0.32


def plot_rates(files: Mapping[str, Mapping[str, Mapping[str, Any]]], out: str) -> str:
    """Draw the rate of everything in these results; the format is that of the file's name.

    Raises:
        SystemExit: matplotlib is not installed.
    """
    try:
        matplotlib = import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise SystemExit("plot needs matplotlib: pip install rqretry[bench]") from error
    rows = max(len(found) for found in files.values())
    figure, panels = pyplot.subplots(
        1, len(files), figsize=(7 * len(files), 1 + _BARS_HIGH * rows), squeeze=False
    )
    for panel, (title, found) in zip(panels[0], files.items(), strict=True):
        names = list(found)[::-1]
        rates = [found[name]["rate"] for name in names]
        spread = [found[name].get("spread", {}).get("rate", (rate, rate)) for name, rate in
                  zip(names, rates, strict=True)]  # fmt: skip
        low = [rate - least for rate, (least, _) in zip(rates, spread, strict=True)]
        high = [most - rate for rate, (_, most) in zip(rates, spread, strict=True)]
        panel.barh(names, rates, xerr=[low, high], color="#4477aa", ecolor="#222222")
        panel.set_xscale("log")
        panel.set_xlabel("per second (logarithmic)")
        panel.set_title(title)
    figure.tight_layout()
    figure.savefig(out)
    return out
