# SPDX-License-Identifier: Apache-2.0
"""Real servers for tests: ClickHouse 18.16 and 26.7, ZooKeeper 3.8, chxad.

Each one listens on 127.0.0.1 only, on ports found free, lives in a folder of its own, ends with the
process that started it (even when that one is killed), and is stopped by its own process id.

As a program it starts servers, puts their addresses into the environment and runs a command:

    servers.py --clickhouse 18 --zookeeper -- build/tests/contract_store_test_contract
"""
import argparse
import atexit
import ctypes
import http.client
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CHXA_BUILD", ROOT / "build"))
LAUNCHER = pathlib.Path(os.environ.get("CHXA_LAUNCHER", BUILD / "tests" / "chdb_launcher"))
CACHE = pathlib.Path(
    os.environ.get("CHXA_CACHE")
    or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "chxa-tests"
)
LIBCHDB = CACHE / "lib-linux-x64-gnu-26.7.3-stable.1" / "libchdb.so"
VEGA = CACHE / "vega-datasets-3.2.1" / "data"

# So that counts and hashes of dates are the same on every machine.
ENVIRONMENT = {**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8"}

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class ServerFailed(Exception):
    """A server did not start; the message ends with its log's last lines."""


def free_port():
    """A port nobody listens on, below the range the kernel picks client ports from."""
    for _ in range(1000):
        port = random.randrange(10240, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ServerFailed("no free port")


def _die_with_parent():
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Ctrl-C at the terminal is for the test runner, which then stops the servers in order.
    os.setpgid(0, 0)


class Server:
    """One child process with a folder and a log. Subclasses say how to start and when it is up."""

    name = "server"
    start_seconds = 60
    stop_seconds = 8
    start_attempts = 3

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path = self.folder / f"{self.name}.log"
        self.process = None

    def command(self):
        raise NotImplementedError

    def choose_ports(self):
        pass

    def is_up(self):
        raise NotImplementedError

    def environment(self):
        return ENVIRONMENT

    def start(self):
        """Starts it and waits until it serves. A port lost to somebody else is worth another try."""
        for attempt in range(self.start_attempts):
            self.choose_ports()
            try:
                self.spawn()
                self.wait_up()
                return self
            except ServerFailed:
                self.kill()
                if attempt == self.start_attempts - 1:
                    raise
        raise AssertionError("not reached")

    def spawn(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment(),
                preexec_fn=_die_with_parent,
            )

    def wait_up(self):
        deadline = time.monotonic() + self.start_seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise ServerFailed(f"{self.name} ended with {self.process.returncode}:\n{self.log_tail()}")
            if self.is_up():
                return
            time.sleep(0.05)
        raise ServerFailed(f"{self.name} not up after {self.start_seconds} s:\n{self.log_tail()}")

    def log_tail(self, lines=25):
        try:
            text = self.log_path.read_text(errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def stop(self):
        """SIGTERM, then SIGKILL past the deadline. Returns the exit status (negative: a signal)."""
        if self.process is None or self.process.poll() is not None:
            return None if self.process is None else self.process.returncode
        self.process.terminate()
        try:
            return self.process.wait(self.stop_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def memory_bytes(self):
        """Resident memory now."""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB", text, re.M).group(1)) * 1024

    def memory_peak_bytes(self):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmHWM:\s+(\d+) kB", text, re.M).group(1)) * 1024


class ClickHouseError(Exception):
    """ClickHouse refused a statement; the message is its own."""


class ClickHouse(Server):
    """What both engines share: the HTTP port and how to ask."""

    engine = ""
    http_port = 0

    @property
    def url(self):
        return f"http://127.0.0.1:{self.http_port}"

    def is_up(self):
        try:
            return self.query("SELECT 1", timeout=5) == "1\n"
        except (OSError, http.client.HTTPException, ClickHouseError):
            return False

    def query(self, statement, body=None, timeout=120, settings=None, raw=False):
        """Runs one statement; body is an INSERT's data (bytes, a file or an iterator of bytes)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=timeout)
        try:
            parameters = dict(settings or {})
            if body is None:
                body = statement.encode()
            else:
                parameters["query"] = statement
            target = "/?" + urllib.parse.urlencode(parameters)
            connection.request("POST", target, body=body)
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if response.status != 200 or response.getheader("X-ClickHouse-Exception-Code"):
            raise ClickHouseError(answer.decode(errors="replace"))
        return answer if raw else answer.decode()

    def rows(self, statement, **options):
        """The answer's rows, each a list of strings (TabSeparated, unescaped by nobody)."""
        return [line.split("\t") for line in self.query(statement, **options).splitlines()]

    def value(self, statement, **options):
        return self.query(statement, **options).rstrip("\n")


CONFIG_18 = """<?xml version="1.0"?>
<yandex>
  <logger><level>warning</level><console>1</console></logger>
  <core_dump><size_limit>0</size_limit></core_dump>
  <timezone>UTC</timezone>
  <listen_host>127.0.0.1</listen_host>
  <http_port>{http_port}</http_port>
  <tcp_port>{tcp_port}</tcp_port>
  <interserver_http_host>127.0.0.1</interserver_http_host>
  <interserver_http_port>{interserver_port}</interserver_http_port>
  <max_connections>4096</max_connections>
  <max_concurrent_queries>400</max_concurrent_queries>
  <keep_alive_timeout>10</keep_alive_timeout>
  <mark_cache_size>268435456</mark_cache_size>
  <path>{folder}/data/</path>
  <tmp_path>{folder}/tmp/</tmp_path>
  <format_schema_path>{folder}/format_schemas/</format_schema_path>
  <users_config>users.xml</users_config>
  <default_profile>default</default_profile>
  <default_database>default</default_database>
  <dictionaries_config>*_dictionary.xml</dictionaries_config>
  <macros><shard>1</shard><replica>{replica}</replica></macros>
  <remote_servers>
    <test><shard><replica><host>127.0.0.1</host><port>{tcp_port}</port></replica></shard></test>
  </remote_servers>
  {zookeeper}
</yandex>
"""

USERS_18 = """<?xml version="1.0"?>
<yandex>
  <profiles><default><max_memory_usage>4000000000</max_memory_usage></default></profiles>
  <users><default>
    <password></password>
    <networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile>
    <quota>default</quota>
  </default></users>
  <quotas><default/></quotas>
</yandex>
"""


class ClickHouse18(ClickHouse):
    """Debian's ClickHouse 18.16.1, with an own configuration."""

    name = "clickhouse18"
    engine = "18.16"

    def __init__(self, folder, zookeeper=None, replica="r1"):
        super().__init__(folder)
        self.zookeeper = zookeeper
        self.replica = replica

    def choose_ports(self):
        self.http_port, self.tcp_port, self.interserver_port = (free_port() for _ in range(3))
        zookeeper = ""
        if self.zookeeper is not None:
            zookeeper = (
                f"<zookeeper><node><host>127.0.0.1</host><port>{self.zookeeper.port}</port></node>"
                "<session_timeout_ms>30000</session_timeout_ms></zookeeper>"
            )
        self.folder.joinpath("config.xml").write_text(
            CONFIG_18.format(
                http_port=self.http_port,
                tcp_port=self.tcp_port,
                interserver_port=self.interserver_port,
                folder=self.folder,
                replica=self.replica,
                zookeeper=zookeeper,
            )
        )
        self.folder.joinpath("users.xml").write_text(USERS_18)

    def command(self):
        return ["/usr/sbin/clickhouse-server", f"--config-file={self.folder}/config.xml"]


CONFIG_26 = """<clickhouse>
  <logger><level>warning</level><log>{folder}/engine.log</log></logger>
  <timezone>UTC</timezone>
  <storage_configuration>
    <disks>
      <first><path>{folder}/disk1/</path></first>
      <second><path>{folder}/disk2/</path></second>
    </disks>
    <policies>
      <two_disks><volumes><main><disk>first</disk><disk>second</disk></main></volumes></two_disks>
    </policies>
  </storage_configuration>
  <remote_servers>
    <test><shard><replica><host>127.0.0.1</host><port>{tcp_port}</port></replica></shard></test>
  </remote_servers>
</clickhouse>
"""


class ClickHouse26(ClickHouse):
    """ClickHouse 26.7 out of libchdb.so, run by tests/lib/chdb_launcher.c."""

    name = "clickhouse26"
    engine = "26.7"

    def choose_ports(self):
        self.http_port, self.tcp_port = free_port(), free_port()
        for disk in ("disk1", "disk2"):
            (self.folder / disk).mkdir(exist_ok=True)
        self.folder.joinpath("config.xml").write_text(CONFIG_26.format(folder=self.folder, tcp_port=self.tcp_port))

    def command(self):
        return [
            LAUNCHER,
            LIBCHDB,
            f"--path={self.folder}/data",
            f"--http_port={self.http_port}",
            f"--tcp_port={self.tcp_port}",
            "--listen_host=127.0.0.1",
            f"--config-file={self.folder}/config.xml",
            "--query",
            "SYSTEM START LISTEN HTTP; SYSTEM START LISTEN TCP; "
            "SELECT sleepEachRow(3) FROM numbers(100000000) SETTINGS max_block_size=1 FORMAT Null",
        ]


class ZooKeeper(Server):
    """Debian's ZooKeeper 3.8, one server."""

    name = "zookeeper"
    port = 0

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def choose_ports(self):
        self.port = free_port()
        self.folder.joinpath("zoo.cfg").write_text(
            f"tickTime=500\ndataDir={self.folder}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=ruok,mntr,cons\nmaxSessionTimeout=60000\n"
        )

    def environment(self):
        return {
            **ENVIRONMENT,
            "JMXDISABLE": "true",
            "ZOO_LOG_DIR": str(self.folder),
            "JVMFLAGS": "-Xmx512m -XX:TieredStopAtLevel=1",
        }

    def command(self):
        script = "/usr/share/zookeeper/bin/zkServer.sh"
        return [script, "start-foreground", self.folder / "zoo.cfg"]

    def is_up(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                # "ruok" is answered before it takes sessions.
                connection.sendall(b"mntr")
                return b"zk_server_state" in connection.makefile("rb").read()
        except OSError:
            return False


class Chxad(Server):
    """The server under test. Its address is the one that it prints."""

    name = "chxad"
    address = ""
    start_seconds = 20
    # Longer than its own deadline, stop_timeout_ms.
    stop_seconds = 40
    start_attempts = 1

    def __init__(self, folder, node, store, clickhouse, options=None):
        super().__init__(folder)
        self.node = node
        self.store = store
        self.clickhouse = clickhouse
        self.options = dict(options or {})

    @property
    def url(self):
        return f"http://{self.address}"

    def command(self):
        flags = {
            "node": self.node,
            # The second start is at the same address, as it is in life.
            "listen": self.address or "127.0.0.1:0",
            "store": self.store,
            "clickhouse": self.clickhouse.url,
            **self.options,
        }
        command = [BUILD / "chxad"]
        for key, value in flags.items():
            command += [f"--{key}", str(value)]
        return command

    def spawn(self):
        self.seen = self.log_path.stat().st_size if self.log_path.exists() else 0
        super().spawn()

    def is_up(self):
        with open(self.log_path, "rb") as log:
            log.seek(self.seen)
            found = re.search(rb"^chxad ready on (?:http://)?(\S+)$", log.read(), re.M)
        if found:
            self.address = found.group(1).decode()
        return found is not None


class Folder:
    """A private temporary folder, removed at the end (kept when CHXA_TEST_KEEP is set)."""

    def __init__(self, prefix="chxa-test-"):
        # Next to where the caller wants it; parts are linked and renamed, so one filesystem for all.
        self.path = pathlib.Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get("CHXA_TEST_TMP")))
        atexit.register(self.remove)

    def remove(self):
        if os.environ.get("CHXA_TEST_KEEP"):
            print(f"kept {self.path}", file=sys.stderr)
        else:
            shutil.rmtree(self.path, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--clickhouse", choices=["18", "26"])
    parser.add_argument("--zookeeper", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    command = [word for word in arguments.command if word != "--"] or [os.environ.get("SHELL", "/bin/sh")]

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Folder()
    environment = {**ENVIRONMENT, "CHXA_TEST_TMP": str(folder.path)}
    servers = []
    try:
        if arguments.zookeeper:
            servers.append(ZooKeeper(folder.path / "zookeeper").start())
            environment["CHXA_TEST_ZOOKEEPER"] = servers[-1].address
        if arguments.clickhouse:
            zookeeper = servers[0] if servers else None
            if arguments.clickhouse == "18":
                server = ClickHouse18(folder.path / "clickhouse", zookeeper)
            else:
                server = ClickHouse26(folder.path / "clickhouse")
            servers.append(server.start())
            environment["CHXA_TEST_CLICKHOUSE"] = server.url
        return subprocess.run(command, env=environment, check=False).returncode
    finally:
        for server in reversed(servers):
            server.stop()


if __name__ == "__main__":
    sys.exit(main())
