"""Processes of a pool on a rack, which are stopped when the `with` ends: the last started first, as compute servers leave a pool while
there is one."""

import itertools
import re
import socket

from bench import Failed, Skipped


class Servers:
    def __init__(self, rack):
        self.rack, self.started, self.directories = rack, [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            process.stop()
        for host, directory in self.directories.items():
            host.remove(directory)

    def directory(self, host):
        if host not in self.directories:
            self.directories[host] = host.make_directory()
        return self.directories[host]

    def start(self, host, name, argv):
        process = host.start(name, argv, self.directory(host))
        self.started.append(process)
        return process

    def start_memory(self, fabric, count, mib, delay=None):
        """memcached as the pool's directory, and so many memory servers; returns the bootstrap URL."""
        if fabric not in self.rack.fabrics:
            raise Skipped(f"fabric {fabric} is not among this rack's ({', '.join(self.rack.fabrics)})")
        first = self.rack.memory_servers[0]
        if not first.has("memcached"):
            raise Skipped("memcached is not installed")
        directory = self.directory(first)
        user = first.output(["id", "-un"]).strip()
        memcached = self.start(first, "memcached", ["env", f"MEMCACHED_PORT_FILENAME={directory}/memcached.port", "memcached", "-l", first.address,
                                                    "-p", "-1", "-U", "0", "-u", user])
        memcached.wait_for(f"{directory}/memcached.port")
        port = re.search(r"TCP INET: (\d+)", first.read(f"{directory}/memcached.port"))
        if not port:
            raise Failed("memcached did not tell its port")
        bootstrap = f"memcached://{first.address}:{port.group(1)}/farleaf"
        for number, host in zip(range(count), itertools.cycle(self.rack.memory_servers)):
            argv = [host.program("memory_server"), "--bootstrap", bootstrap, "--id", number, "--size", f"{mib}MiB", "--fabric", fabric]
            argv += ["--socket", f"{self.directory(host)}/memory-{number}.sock"] if fabric == "shm" else ["--listen", f"{host.address}:0"]
            argv += ["--insecure"] if host.address != "127.0.0.1" and fabric != "shm" else []
            self.start(host, f"memory_server_{number}", argv)
        return bootstrap

    def start_compute(self, host, name, bootstrap, memory_servers, arguments):
        """URLs of a compute server that serves."""
        ready = f"{self.directory(host)}/{name}.ready"
        argv = [host.program("compute_server"), "--bootstrap", bootstrap, "--memory-servers-min", memory_servers, "--ready-file", ready,
                *(["--insecure"] if host.address != "127.0.0.1" else []), *arguments]
        process = self.start(host, name, argv)
        process.wait_for(ready)
        return host.read(ready).split()[1:], process


def free_port(host):
    """A port that nobody listens on there now."""
    if not host.ssh:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            return one.getsockname()[1]
    return int(host.output(["python3", "-c", "import socket; s = socket.socket(); s.bind(('', 0)); print(s.getsockname()[1])"]))
