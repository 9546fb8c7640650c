#!/usr/bin/env python3
"""What an application does with pymemcache, against two servers of the same items.

    pymemcache_check.py HOST:PORT HOST:PORT

Exit code 0 if all was as it should be.
"""

import sys

from pymemcache.client.base import Client


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def main():
    one, two = (Client(address(text), timeout=60, connect_timeout=60) for text in sys.argv[1:3])
    assert one.set("py.a", b"1", noreply=False)
    assert two.get("py.a") == b"1"
    assert not two.add("py.a", b"2", noreply=False)
    value, cas = two.gets("py.a")
    assert one.cas("py.a", b"3", cas) is True
    assert two.cas("py.a", b"4", cas) is False
    assert two.cas("py.none", b"4", cas) is None
    assert two.incr("py.a", 4) == 7 and one.decr("py.a", 2) == 5
    assert one.incr("py.none", 1) is None
    assert one.append("py.a", b"0", noreply=False) and two.prepend("py.a", b"1", noreply=False)
    assert one.get("py.a") == b"150"
    assert one.touch("py.a", 1000, noreply=False)
    many = {f"py.many.{i}": b"value %d" % i for i in range(300)}
    assert one.set_many(many, noreply=False) == []
    assert two.get_many(many) == many
    assert len(two.gets_many(list(many)[:50])) == 50
    assert two.delete("py.a", noreply=False) and not one.delete("py.a", noreply=False)
    one.set_many({"py.quiet": b"1"})  # noreply
    assert one.get("py.quiet") == b"1"
    large = b"x" * (1 << 20)
    assert one.set("py.large", large, noreply=False) and two.get("py.large") == large
    assert b"farleaf" in one.version()
    assert int(two.stats()[b"threads"]) >= 1
    assert one.flush_all(noreply=False) and two.get_many(many) == {}


if __name__ == "__main__":
    main()
