# SPDX-License-Identifier: Apache-2.0
"""The command chxa, run as a script runs it, or typed in a terminal (tmux) as a person does."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import jsonschema
import servers

CHXA = servers.BUILD / "chxa"
SCHEMA = jsonschema.Draft202012Validator(json.loads((servers.ROOT / "deploy" / "chxa.schema.json").read_text()))
ENVIRONMENT = {key: value for key, value in servers.ENVIRONMENT.items() if key not in ("CHXA_URL", "NO_COLOR")}


class Done:
    def __init__(self, process):
        self.code = process.returncode
        self.out = process.stdout.decode()
        self.err = process.stderr.decode()

    def __repr__(self):
        return f"<exit {self.code}\n{self.out}\n-- stderr --\n{self.err}>"


class Tool:
    """chxa that asks these nodes."""

    def __init__(self, *urls):
        self.environment = {**ENVIRONMENT, "CHXA_URL": " ".join(urls)}

    def __call__(self, *words, exit=0, input=b"", timeout=100, **environment):
        """Runs a command; fails the test unless it exits with that code. Standard input is never a terminal."""
        done = Done(
            subprocess.run(
                [CHXA, *map(str, words)],
                input=input,
                capture_output=True,
                timeout=timeout,
                env={**self.environment, **environment},
            )
        )
        assert done.code == exit, f"{words}: {done}"
        return done

    def json(self, *words, exit=0, input=b"", timeout=100):
        """The same with --json: the document, which must be of the form that is documented."""
        done = self(*words, "--json", exit=exit, input=input, timeout=timeout)
        assert done.out.isascii()
        document = json.loads(done.out)
        problems = [f"{list(error.path)}: {error.message}" for error in SCHEMA.iter_errors(document)]
        assert not problems, f"{problems}\n{done}"
        assert document["exit"] == exit, document
        assert document["command"] == words[0]
        return document

    def start(self, *words, **options):
        return subprocess.Popen([CHXA, *map(str, words)], env=self.environment, **options)


class Terminal:
    """A terminal of tmux with a shell in it. What is seen is what a person sees."""

    def __init__(self, tool, columns=100, lines=50, shell="bash --norc --noprofile"):
        self.folder = tempfile.mkdtemp(prefix="chxa-tmux-")  # a socket's path has to be short
        self.socket = pathlib.Path(self.folder) / "s"
        environment = {**tool.environment, "TERM": "xterm-256color"}
        environment["PATH"] = f"{CHXA.parent}:{os.environ['PATH']}"
        environment.pop("TMUX", None)
        self.environment = environment
        size = ("-x", str(columns), "-y", str(lines))
        self.tmux("-f", "/dev/null", "new-session", "-d", *size, f"env PS1='$ ' {shell}")
        self.wait(r"^\$")

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-S", self.socket, *words], env=self.environment, capture_output=True, timeout=30)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def type(self, text, enter=True):
        self.tmux("send-keys", "-l", text)
        if enter:
            self.tmux("send-keys", "Enter")

    def key(self, name):
        self.tmux("send-keys", name)

    def screen(self, colours=False):
        return self.tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def wait(self, pattern, seconds=30):
        """Waits until the screen shows this; returns the match."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            screen = self.screen()
            found = re.search(pattern, screen, re.MULTILINE)
            if found:
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} on the screen:\n{self.screen()}")

    def begin(self, command):
        """Types a command on an empty screen."""
        self.type("clear")
        self.wait(r"\A\$ *\n*\Z")
        self.type(f"{command}; echo \"[exit $?]\"")

    def end(self, seconds=30):
        """Waits for its end; returns the exit code."""
        return int(self.wait(r"^\[exit (\d+)\]", seconds).group(1))

    def run(self, command, seconds=30):
        """Both; returns the exit code and the screen."""
        self.begin(command)
        return self.end(seconds), self.screen()

    def close(self):
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self.environment, capture_output=True, timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)
