# SPDX-License-Identifier: Apache-2.0
"""What was measured, as JSON, as tables, as plots."""
import json
import os
import pathlib
import shutil
import subprocess

from lab import ENGINES, servers


def ratio_text(cell):
    lower, upper = cell["lower"], cell["upper"]
    if cell["ratio"]:
        return f"{cell['median']:.2f} ({lower:.2f} … {upper:.2f})"
    return f"{cell['median']:.3g} ({lower:.3g} … {upper:.3g}) {cell['unit']}"


def reach_text(cell):
    if cell["reach"] is None:
        return "–"
    return f"{'≥' if cell['more'] else '≤'} {cell['reach']:g}" + ("" if cell["ratio"] else f" {cell['unit']}")


HEADS = ("what", "ClickHouse", "store", "reach", "reached", "verdict", "processor time")


def rows_of(cells, titles):
    rows = []
    for cell in cells:
        rows.append((f"{titles[cell['case']]}: {cell['label']}", ENGINES.get(cell["engine"], "–"), cell["store"],
                     reach_text(cell), ratio_text(cell), cell["verdict"] or "–",
                     f"{cell['cpu_ratio']:.2f}" if cell["cpu_ratio"] else "–"))  # fmt: skip
    return rows


SUMMARY_HEADS = ("what", "reach", "reached", "verdict")


def summary(cells, titles):
    """What there is to reach, a row each: the worst cell's figure, and what all cells together prove."""
    groups = {}
    for cell in cells:
        if cell["reach"] is not None:
            groups.setdefault((titles[cell["case"]], reach_text(cell)), []).append(cell)
    rows = []
    for (title, reach), group in groups.items():
        worst = min(group, key=lambda cell: cell["median"] if cell["more"] else -cell["median"])
        verdicts = {cell["verdict"] for cell in group}
        verdict = next(word for word in ("no", "spread too wide", "yes") if word in verdicts)
        where = f" at {worst['label']}, {ENGINES[worst['engine']]}, {worst['store']}" if len(group) > 1 else ""
        rows.append((title, reach, ratio_text(worst) + where, verdict))
    return rows


def plain_table(heads, rows):
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows])


def markdown_table(heads, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [heads, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def machine():
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = int(pathlib.Path("/proc/meminfo").read_text().split()[1]) // 1024 // 1024
    revision = subprocess.run(["git", "-C", servers.ROOT, "describe", "--always", "--dirty"], check=False,
                              capture_output=True, text=True).stdout.strip()  # fmt: skip
    return {"cores": os.cpu_count(), "model": model, "memory_gb": memory, "revision": revision,
            "load_average": os.getloadavg()[0]}  # fmt: skip


def write_json(path, result):
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


# ---- plots ----

PLOT = """
set terminal svg size 640,360 font "sans-serif,12" background "white"
set output "{output}"
set title "{title}"
set xlabel "{xlabel}"
set ylabel "{ylabel}"
set key outside below
set grid ytics lc rgb "#dddddd"
set border 3
set tics nomirror
set yrange [0:*]
{logscale}
set xrange [{low}:{high}]
{data}
plot {lines}
"""


def plot(path, title, xlabel, ylabel, series, reach, logscale):
    """series: {name: [(x, median, lower, upper)]}, with bars from quartile to quartile."""
    xs = sorted({point[0] for points in series.values() for point in points})
    data, lines = "", []
    for number, (name, points) in enumerate(series.items()):
        text = "\n".join(" ".join(f"{value:.6g}" for value in point) for point in sorted(points))
        data += f"$d{number} << END\n{text}\nEND\n"
        lines.append(f'$d{number} using 1:2 with lines lw 2 lc {number + 1} title "{name}"')
        lines.append(f"$d{number} using 1:2:3:4 with yerrorbars pt 7 ps 0.6 lw 1 lc {number + 1} notitle")
    if reach is not None:
        lines.append(f'{reach} with lines dt 2 lc rgb "#555555" title "to reach: {reach:g}"')
    script = PLOT.format(output=path, title=title, xlabel=xlabel, ylabel=ylabel, data=data, lines=", ".join(lines),
                         logscale=f"set logscale x\nset xtics ({', '.join(f'{x:g}' for x in xs)})" if logscale else "",
                         low=xs[0] * 0.8, high=xs[-1] * 1.25)  # fmt: skip
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def write_plots(folder, cells, plots):
    """plots: {case: (title, xlabel, ylabel)}; a plot needs two points or more."""
    if shutil.which("gnuplot") is None:
        print("no gnuplot here, so no plots: tests/lib/install tests")
        return []
    written = []
    for case, (title, xlabel, ylabel) in plots.items():
        series, reaches = {}, set()
        for cell in cells:
            if cell["case"] == case:
                name = f"ClickHouse {ENGINES[cell['engine']]}, {cell['store']}"
                series.setdefault(name, []).append((cell["x"], cell["median"], cell["lower"], cell["upper"]))
                reaches.add(cell["reach"])
        if not series or max(len(points) for points in series.values()) < 2:
            continue
        path = pathlib.Path(folder) / f"{case}.svg"
        reach = reaches.pop() if len(reaches) == 1 else None
        plot(path, title, xlabel, ylabel, series, reach, logscale=True)
        written.append(path)
    return written
