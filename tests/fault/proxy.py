# SPDX-License-Identifier: Apache-2.0
"""tests/lib/cutproxy.c from Python."""
import subprocess

import servers


class Proxy:
    """tests/lib/cutproxy.c before a server; tell() takes its commands. Ends with the thread that made it."""

    def __init__(self, port):
        self.process = subprocess.Popen(
            [str(servers.BUILD / "tests" / "cutproxy"), f"127.0.0.1:{port}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=servers._die_with_parent,
        )
        self.port = int(self.process.stdout.readline().split()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def tell(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer.startswith("ok"), (command, answer)

    def stop(self):
        self.process.kill()
        self.process.wait()
