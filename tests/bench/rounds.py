# SPDX-License-Identifier: Apache-2.0
"""Two sides measured in alternating rounds, so that a slow moment of the machine hits both; and what their ratio proves."""
import dataclasses
import os
import statistics
import time


def quartiles(values):
    if len(values) < 2:
        return values[0], values[0]
    lower, _, upper = statistics.quantiles(values, n=4, method="inclusive")
    return lower, upper


@dataclasses.dataclass
class Cell:
    """One comparison: `ours` against `theirs`, each a function that runs a side once and returns its figure.

    reach is of the ratio ours ÷ theirs; more says which way is better. theirs None: a figure alone, whose reach is its own.
    """

    case: str
    engine: str
    store: str
    label: str
    x: float
    ours: object
    theirs: object = None
    unit: str = "rows/s"
    reach: float = None
    more: bool = True
    series: str = ""  # of the plot, where a case has several
    processor: bool = True  # all work of both sides is the servers', and nothing but it is in a run
    pairs: list = dataclasses.field(default_factory=list)
    cpu: list = dataclasses.field(default_factory=list)
    loads: list = dataclasses.field(default_factory=list)

    def run(self, number, cpu_seconds):
        sides = [("ours", self.ours)] + ([("theirs", self.theirs)] if self.theirs else [])
        figures, cpu = {}, {"theirs": 0}
        self.loads.append(os.getloadavg()[0])
        for name, side in sides if number % 2 == 0 else reversed(sides):
            before = cpu_seconds()
            figures[name] = side()
            cpu[name] = cpu_seconds() - before
        self.cpu.append((cpu["ours"], cpu["theirs"]))
        self.pairs.append((figures["ours"], figures.get("theirs", 1)))

    @property
    def ratios(self):
        return [one / other for one, other in self.pairs]

    @property
    def cpu_ratios(self):
        """Processor time of all servers, which other programs disturb little."""
        if self.theirs is None or not self.processor:
            return []
        return [one / other for one, other in self.cpu if one > 0.05 and other > 0.05]

    @property
    def median(self):
        return statistics.median(self.ratios)

    @property
    def spread(self):
        return quartiles(self.ratios)

    @property
    def verdict(self):
        """Only when half of the rounds and more lie on one side of the reach is anything said."""
        if self.reach is None:
            return ""
        lower, upper = self.spread
        if self.more:
            reached, missed = lower >= self.reach, upper < self.reach
        else:
            reached, missed = upper <= self.reach, lower > self.reach
        return "yes" if reached else "no" if missed else "spread too wide"

    def as_json(self):
        lower, upper = self.spread
        return {
            "case": self.case, "engine": self.engine, "store": self.store, "label": self.label, "x": self.x,
            "series": self.series,
            "unit": self.unit, "ratio": self.theirs is not None, "median": self.median, "lower": lower, "upper": upper,
            "reach": self.reach, "more": self.more, "verdict": self.verdict,
            "ours": [pair[0] for pair in self.pairs],
            "theirs": [pair[1] for pair in self.pairs] if self.theirs else None,
            "ours_cpu_s": [pair[0] for pair in self.cpu], "theirs_cpu_s": [pair[1] for pair in self.cpu],
            "cpu_ratio": statistics.median(self.cpu_ratios) if self.cpu_ratios else None,
            "load_average": self.loads,
        }  # fmt: skip


def show(figure, unit):
    if unit == "rows/s" and figure >= 1e6:
        return f"{figure / 1e6:.2f}M rows/s"
    if unit == "rows/s" and figure >= 1e4:
        return f"{figure / 1e3:.0f}k rows/s"
    return f"{figure:.4g} {unit}"


def run_rounds(cells, rounds, cpu_seconds):
    """Every cell once in each round, so that the rounds of a cell lie apart in time."""
    for number in range(rounds):
        for cell in cells:
            started = time.monotonic()
            cell.run(number, cpu_seconds)
            one, other = cell.pairs[-1]
            text = f"  {cell.case} {cell.engine} {cell.store}, {cell.label}: {show(one, cell.unit)}"
            if cell.theirs:
                text += f" against {show(other, cell.unit)}, ratio {one / other:.3f}"
            if cell.cpu_ratios:
                text += f", processor time {cell.cpu_ratios[-1]:.2f}"
            print(f"{text}   (round {number + 1} of {rounds}, {time.monotonic() - started:.1f} s)", flush=True)
