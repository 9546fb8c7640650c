#!/usr/bin/env bash
# bench.py --hosts on a rack whose ssh runs every command here: bench_hosts_check.sh BIN OUT. Memory server, compute server and client
# are asked by their destinations, and what they did comes back as rows. Exit code 77 without memcached.
set -euo pipefail
cd "$(dirname "$0")/../.."
bin=$1 out=$2
command -v memcached >/dev/null || exit 77
rm -rf "$out"
mkdir -p "$out/path" "$out/scratch"
cat >"$out/path/ssh" <<END
#!/bin/sh
[ "\$1" = -q ] || exit 255
echo "\$2" >>"$out/ssh.log"
shift 2
exec sh -c "\$*"
END
chmod +x "$out/path/ssh"
cat >"$out/rack.toml" <<END
programs = "$bin"
fabrics = ["tcp"]
scratch = "$out/scratch"
ssh_options = ["-q"]
[[memory_server]]
ssh = "memory"
[[memory_server]]
ssh = "memory2"
[[compute_server]]
ssh = "compute"
[[client]]
ssh = "client"
[[client]]
ssh = "client2"
END
PATH=$out/path:$PATH scripts/bench.py --tiny --hosts "$out/rack.toml" --bin "$bin" --out "$out" --only scaling,front_ends run
python3 - "$out" <<'END'
import json
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
for name in ("scaling", "front_ends"):
    cases = json.loads((out / f"{name}.json").read_text())["cases"]
    assert cases and all(case.get("rows") for case in cases), (name, cases)
scaling = [case["case"] for case in json.loads((out / "scaling.json").read_text())["cases"]]
assert {case["fabric"] for case in scaling} == {"tcp"}, scaling
asked = set((out / "ssh.log").read_text().split())
assert asked == {"memory", "memory2", "compute", "client", "client2"}, asked
left = list((out / "scratch").iterdir())
assert not left, f"left behind on the hosts: {left}"
END
