# SPDX-License-Identifier: Apache-2.0
"""What was measured, as JSON, as tables, as plots."""
import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess

from lab import ENGINES, servers


def ratio_text(cell):
    lower, upper = cell["lower"], cell["upper"]
    form = ".2f" if cell["ratio"] else ".3g"
    spread = f" ({lower:{form}} … {upper:{form}})" if len(cell["ours"]) > 1 else " (one round)"
    return f"{cell['median']:{form}}{spread}" + ("" if cell["ratio"] else f" {cell['unit']}")


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


TOO_BUSY = "machine too busy"
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
        verdict = next(word for word in ("no", "spread too wide", TOO_BUSY, "yes") if word in verdicts)
        where = f" at {worst['label']}, {ENGINES[worst['engine']]}, {worst['store']}" if len(group) > 1 else ""
        rows.append((title, reach, ratio_text(worst) + where, verdict))
    return rows


def plain_table(heads, rows):
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in [heads, *rows])


def markdown_table(heads, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [heads, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def lacks_journal(folder):
    """Is it on an ext4 without a journal? Such a one looks past every inode that was deleted in the last minutes whenever it makes one."""
    device = os.stat(folder).st_dev
    path = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    known = pathlib.Path("/proc/fs/ext4") / path.name
    return known.exists() and not list(pathlib.Path("/proc/fs/jbd2").glob(f"{path.name}-*"))


def machine(size):
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = round(int(pathlib.Path("/proc/meminfo").read_text().split()[1]) / 1e6)
    revision = subprocess.run(["git", "-C", servers.ROOT, "describe", "--always", "--dirty"], check=False,
                              capture_output=True, text=True).stdout.strip()  # fmt: skip
    return {"date": f"{datetime.date.today()}", "size": size, "cores": os.cpu_count(), "model": model, "memory_gb": memory,
            "revision": revision, "load_average": os.getloadavg()[0]}  # fmt: skip


def write_json(path, result):
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def read_json(path):
    return json.loads(pathlib.Path(path).read_text())


def judge(result):
    """What was timed beside other programs proves nothing, however close together it lies."""
    machine = result["machines"][-1]
    if len(result["machines"]) == 1 and machine["load_average"] > machine["cores"]:
        for cell in result["cells"]:
            if cell["ratio"] and cell["reach"] is not None:
                cell["verdict"] = TOO_BUSY
    return result


def merge(results):
    """One result of several: a later run's cells take the place of the same cells of an earlier one."""
    cells, machines = {}, []
    for result in results:
        for cell in result["cells"]:
            cells[tuple(cell[key] for key in ("case", "engine", "store", "label"))] = cell
        machines += [machine for machine in result["machines"] if machine not in machines]
    return {"machines": machines, "cells": list(cells.values())}


# ---- plots ----

HEAD = """
set terminal svg noenhanced size {width},{height} font "sans-serif,12" background "white"
set output "{output}"
set title "{title}"
set border 3
set tics nomirror
"""
CURVES = """
set xlabel "{xlabel}"
set ylabel "{ylabel}"
set key outside below
set grid ytics lc rgb "#dddddd"
set yrange [0:*]
set logscale x
set xtics ({xtics})
set xrange [{low}:{high}]
{data}
plot {lines}
"""
DOTS = """
set xlabel "{xlabel}"
set xrange [0:*]
set yrange [{last}:0.5]
set ytics ({ytics})
set lmargin 58
set grid xtics lc rgb "#dddddd"
set arrow from 1, graph 0 to 1, graph 1 nohead dt 2 lc rgb "#555555"
set key off
{data}
plot $d using 2:1:3:4 with xerrorbars pt 7 ps 0.6 lw 1 lc 1
"""


def data_block(name, points):
    text = "\n".join(" ".join(f"{value:.6g}" for value in point) for point in points)
    return f"${name} << END\n{text}\nEND\n"


def gnuplot(script):
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def series_of(cells):
    """{name: cells}; where all are of one engine and store, their names are left out."""
    places = {(cell["engine"], cell["store"]) for cell in cells}
    series = {}
    for cell in cells:
        words = [cell["series"]] if cell["series"] else []
        if len(places) > 1 or not words:
            words = [f"ClickHouse {ENGINES[cell['engine']]}", cell["store"], *words]
        series.setdefault(", ".join(words), []).append(cell)
    return series


def plot_curves(path, title, xlabel, ylabel, cells):
    """A line for each series, with bars from quartile to quartile, and what is to be reached where that is one figure."""
    data, lines = "", []
    for number, (name, mine) in enumerate(series_of(cells).items(), 1):
        data += data_block(f"d{number}", sorted((cell["x"], cell["median"], cell["lower"], cell["upper"]) for cell in mine))
        lines.append(f'$d{number} using 1:2 with lines lw 2 lc {number} title "{name}"')
        lines.append(f"$d{number} using 1:2:3:4 with yerrorbars pt 7 ps 0.6 lw 1 lc {number} notitle")
    reaches = {cell["reach"] for cell in cells}
    if len(reaches) == 1 and None not in reaches:
        lines.append(f'{min(reaches)} with lines dt 2 lc rgb "#555555" title "to reach: {min(reaches):g}"')
    else:
        lines.append('1 with lines dt 2 lc rgb "#555555" notitle')
    xs = sorted({cell["x"] for cell in cells})
    gnuplot((HEAD + CURVES).format(
        width=640, height=360, output=path, title=title, xlabel=xlabel, ylabel=ylabel, data=data, lines=", ".join(lines),
        xtics=", ".join(f"{x:g}" for x in xs), low=xs[0] * 0.8, high=xs[-1] * 1.25))  # fmt: skip


def plot_dots(path, title, xlabel, cells):
    """A row for each cell."""
    ytics = ", ".join(f'"{cell["label"]}" {number}' for number, cell in enumerate(cells, 1))
    points = [(number, cell["median"], cell["lower"], cell["upper"]) for number, cell in enumerate(cells, 1)]
    gnuplot((HEAD + DOTS).format(width=900, height=90 + 18 * len(cells), output=path, title=title, xlabel=xlabel, ytics=ytics,
                                 last=len(cells) + 0.5, data=data_block("d", points)))  # fmt: skip


def is_plotted(case, cells):
    """One cell alone is not."""
    return len({cell["x"] for cell in cells if cell["case"] == case}) > 1


def write_plots(folder, cells, plots):
    """plots: {case: (title, xlabel, ylabel)}, without a ylabel a row for each cell."""
    if shutil.which("gnuplot") is None:
        print("no gnuplot here, so no plots: tests/lib/install tests")
        return []
    written = []
    for case, labels in plots.items():
        mine = [cell for cell in cells if cell["case"] == case]
        if not is_plotted(case, cells):
            continue
        path = pathlib.Path(folder) / f"{case}.svg"
        (plot_curves if len(labels) == 3 else plot_dots)(path, *labels, mine)
        written.append(path)
    return written


# ---- the page ----

MARK = re.compile(r"(<!-- bench: (\w+)((?: [\w-]+)*) -->\n).*?(<!-- bench end -->\n)", re.DOTALL)


def page_section(kind, cases, result, titles, plots):
    if kind == "plot":
        return "\n".join(f"![{plots[case][0]}](plots/{case}.svg)" for case in cases if is_plotted(case, result["cells"]))
    cells = [cell for cell in result["cells"] if not cases or cell["case"] in cases]
    if not cells:
        return "Not measured yet."
    if kind == "summary":
        return markdown_table(SUMMARY_HEADS, summary(cells, titles))
    if kind == "table":
        return markdown_table(HEADS, rows_of(cells, titles))
    if kind == "machine":
        lines = [
            f"* {machine['date']}, a {machine['size']} run on {machine['cores']} cores ({machine['model']}), {machine['memory_gb']} GB; "
            f"revision {machine['revision']}; load average before it {machine['load_average']:.1f}"
            for machine in result["machines"]
        ]
        if any(machine["load_average"] > machine["cores"] for machine in result["machines"]):
            lines.append("* The machine was busy with other things besides. What was timed then proves nothing.")
        return "\n".join(lines)
    raise ValueError(f"no section is called {kind}")


def write_page(path, result, titles, plots):
    """Everything between two marks of the page is written anew, from the result."""
    text = path.read_text()
    path.write_text(MARK.sub(
        lambda match: match[1] + page_section(match[2], match[3].split(), result, titles, plots) + "\n" + match[4], text))  # fmt: skip
