"""Where programs run: this machine, or the hosts of a rack over ssh.

A rack is a TOML file:

    programs = "/opt/farleaf/bin"          # on all hosts: ycsb, memory_server, compute_server
    fabrics = ["verbs"]                    # of shm, tcp, verbs; experiments with others are skipped (["tcp"])
    scratch = "/tmp"                       # directories for data and logs are made there
    ssh_options = ["-o", "BatchMode=yes"]  # before the destination

    [[memory_server]]                      # the first also runs memcached, the directory of the pool
    ssh = "user@node1"                     # none: this machine
    address = "10.0.0.1"                   # where the others reach it
    [[compute_server]]                     # one each; they serve the front ends
    ssh = "user@node2"
    address = "10.0.0.2"
    [[client]]                             # one process of ycsb each, and more than one where an experiment asks for more
    ssh = "user@node3"
    address = "10.0.0.3"
"""

import dataclasses
import shlex
import subprocess
import tempfile
import time
import tomllib

from bench import Failed

SCRATCH_TIMEOUT_S = 60


class BadHosts(Exception):
    """A file of hosts that cannot be used: names it, and what is wrong."""


@dataclasses.dataclass(frozen=True)
class Host:
    programs: str
    ssh: str = ""
    address: str = "127.0.0.1"
    scratch: str = "/tmp"
    ssh_options: tuple = ()

    def command(self, argv):
        """argv as it is started from this machine."""
        argv = [str(one) for one in argv]
        return ["ssh", *self.ssh_options, self.ssh, shlex.join(argv)] if self.ssh else argv

    def program(self, name):
        return f"{self.programs}/{name}"

    def run(self, argv, timeout=None):
        """CompletedProcess; fails if there is no such program or it does not end in time (seconds)."""
        try:
            return subprocess.run(self.command(argv), capture_output=True, text=True, check=False, timeout=timeout, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as problem:
            raise Failed(f"{argv[0]} did not end within {timeout:.0f} s") from problem
        except OSError as problem:
            raise Failed(f"{argv[0]}: {problem.strerror}") from problem

    def output(self, argv, timeout=SCRATCH_TIMEOUT_S):
        done = self.run(argv, timeout)
        if done.returncode != 0:
            raise Failed(f"{self.ssh or 'here'}: {shlex.join(map(str, argv))}: exit code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def make_directory(self):
        return self.output(["mktemp", "-d", f"{self.scratch}/farleaf.XXXXXX"]).strip()

    def remove(self, path):
        self.run(["rm", "-rf", path], SCRATCH_TIMEOUT_S)

    def read(self, path):
        return self.output(["cat", path])

    def write(self, path, text):
        done = subprocess.run(self.command(["sh", "-c", f"cat >{shlex.quote(path)}"]), input=text, text=True, capture_output=True, check=False,
                              timeout=SCRATCH_TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f"{self.ssh or 'here'}: {path}: {done.stderr.strip()}")

    def exists(self, path):
        return self.run(["test", "-s", path], SCRATCH_TIMEOUT_S).returncode == 0

    def has(self, program):
        return self.run(["sh", "-c", f"command -v {shlex.quote(program)}"], SCRATCH_TIMEOUT_S).returncode == 0

    def start(self, name, argv, directory):
        return Process(self, name, argv, directory)


class Process:
    """One that runs until it is stopped. Its output is in DIRECTORY/NAME.log of its host."""

    def __init__(self, host, name, argv, directory):
        self.host, self.name, self.log, self.pid_file = host, name, f"{directory}/{name}.log", f"{directory}/{name}.pid"
        # The shell becomes the program, so that its process id is the program's; of a background job of a shell there, ssh would wait for
        # the end all the same.
        script = f"echo $$ >{shlex.quote(self.pid_file)}; exec {shlex.join(map(str, argv))} >{shlex.quote(self.log)} 2>&1"
        self.process = subprocess.Popen(host.command(["sh", "-c", script]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def wait_for(self, path, seconds=60):
        deadline = time.monotonic() + seconds
        while not self.host.exists(path):
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self.host.run(["tail", "-n", "5", self.log], SCRATCH_TIMEOUT_S).stdout.strip()
                raise Failed(f"{self.name} does not start: {log}")
            time.sleep(0.05)

    def pid(self):
        return int(self.host.read(self.pid_file))

    def stop(self):
        if self.process.poll() is not None:
            return
        self.host.run(["sh", "-c", f"kill -TERM $(cat {shlex.quote(self.pid_file)})"], SCRATCH_TIMEOUT_S)
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.host.run(["sh", "-c", f"kill -KILL $(cat {shlex.quote(self.pid_file)})"], SCRATCH_TIMEOUT_S)
            self.process.kill()
            self.process.wait()


@dataclasses.dataclass(frozen=True)
class Rack:
    memory_servers: tuple
    compute_servers: tuple
    clients: tuple
    fabrics: tuple
    file: str = ""

    @property
    def is_local(self):
        return not self.file


def this_machine(programs):
    here = Host(programs, scratch=tempfile.gettempdir())
    return Rack((here,), (here,), (here,), ("shm", "tcp"))


def read_rack(path, programs):
    try:
        with open(path, "rb") as file:
            data = tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise BadHosts(f"{path}: {problem}") from problem
    roles = ("memory_server", "compute_server", "client")
    for key in data:
        if key not in (*roles, "programs", "fabrics", "scratch", "ssh_options"):
            raise BadHosts(f"{path}: unknown key {key}")
    hosts = {}
    for role in roles:
        if not data.get(role):
            raise BadHosts(f"{path}: there is no [[{role}]]")
        for one in data[role]:
            if unknown := set(one) - {"ssh", "address"}:
                raise BadHosts(f"{path}: [[{role}]] has {unknown.pop()}, which is neither ssh nor address")
        hosts[role] = tuple(Host(data.get("programs", programs), one.get("ssh", ""), one.get("address", "127.0.0.1"), data.get("scratch", "/tmp"),
                                 tuple(data.get("ssh_options", ()))) for one in data[role])
    return Rack(hosts["memory_server"], hosts["compute_server"], hosts["client"], tuple(data.get("fabrics", ["tcp"])), str(path))
