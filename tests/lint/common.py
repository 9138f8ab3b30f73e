# SPDX-License-Identifier: Apache-2.0
"""What the lints share: the repository's files, C text without comments and strings, and the closing."""
import os
import re
import subprocess
import sys


class Lint:
    def __init__(self):
        self.root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else ".")
        self.problems = []

    def files(self, *endings, under=("",)):
        """Paths, relative to the root, of the files that git knows or would add."""
        listing = subprocess.run(
            ["git", "-C", self.root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout.decode()
        for path in sorted(set(listing.split("\0"))):
            if path.endswith(endings) and path.startswith(tuple(under)) and self.exists(path):
                yield path

    def exists(self, path):
        return os.path.isfile(os.path.join(self.root, path))

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def problem(self, path, line, sentence):
        self.problems.append(f"{path}:{line}: {sentence}" if line else f"{path}: {sentence}")

    def finish(self, note=""):
        for problem in self.problems:
            print(problem)
        if not self.problems and note:
            print(note)
        sys.exit(1 if self.problems else 0)


def without_comments(text, strings_too=True):
    """C text with comments (and the insides of literals) blanked out, lines kept."""
    def blank(match):
        found = match.group(0)
        if found[0] == "/":
            return re.sub(r"[^\n]", " ", found)
        return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1] if strings_too else found
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def macro_rows(text, macro):
    """Arguments (as written, strings without their quotes) and line of each call of an X-macro."""
    for match in re.finditer(rf"^{macro}\((.*)\)\s*$", text, flags=re.MULTILINE):
        arguments = re.findall(r'"((?:\\.|[^"\\])*)"|([^,"]+)', match.group(1))
        yield [a if not b.strip() else b.strip() for a, b in arguments if a or b.strip() or not b], \
            line_of(text, match.start())
