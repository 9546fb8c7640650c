#!/usr/bin/env python3
"""What an application does with the redis package, against two servers of the same keys; and what answers are of which
type in RESP3, which the package of Debian 12 does not speak.

    redis_check.py HOST:PORT HOST:PORT

Exit code 0 if all was as it should be.
"""

import socket
import sys

import redis


def client(text):
    host, port = text.rsplit(":", 1)
    return redis.Redis(host=host, port=int(port), socket_timeout=60, decode_responses=True)


def strings(one, two):
    assert one.ping() and one.set("py.a", "1") and two.get("py.a") == "1"
    assert two.set("py.a", "2", nx=True) is None and two.set("py.a", "2", xx=True, get=True) == "1"
    assert one.incr("py.a", 5) == 7 and two.decr("py.a") == 6 and one.incrbyfloat("py.f", 0.5) == 0.5
    assert two.append("py.a", "0") == 2 and one.getrange("py.a", 0, 0) == "6" and one.strlen("py.a") == 2
    assert one.setrange("py.a", 1, "x") == 2 and two.getset("py.a", "y") == "6x"
    assert one.getdel("py.a") == "y" and two.get("py.a") is None
    assert one.setex("py.e", 100, "x") and 0 < two.ttl("py.e") <= 100
    assert two.getex("py.e", persist=True) == "x" and one.ttl("py.e") == -1
    assert one.expire("py.e", 50) and two.pttl("py.e") <= 50_000 and two.persist("py.e")
    assert one.expireat("py.e", 1) and two.exists("py.e") == 0
    many = {f"py.many.{i}": f"value {i}" for i in range(300)}
    assert one.mset(many) and two.mget(many) == list(many.values())
    assert sorted(two.scan_iter("py.many.*", count=70)) == sorted(many)
    assert two.type("py.many.1") == "string" and two.delete(*many) == 300 and one.exists(*many) == 0
    assert two.unlink("py.f", "py.none") == 1


def pipelines(one, two):
    with one.pipeline(transaction=False) as pipe:
        for i in range(200):
            pipe.set(f"py.p.{i}", i)
            pipe.get(f"py.p.{i}")
        answers = pipe.execute()
    assert answers[0::2] == [True] * 200 and answers[1::2] == [str(i) for i in range(200)]
    with two.pipeline(transaction=False) as pipe:
        for i in range(200):
            pipe.get(f"py.p.{i}")
        assert pipe.execute() == [str(i) for i in range(200)]


def hashes(one, two):
    fields = {f"f{i:03}": f"v{i}" for i in range(150)}
    assert one.hset("py.h", mapping=fields) == 150 and two.hgetall("py.h") == fields
    assert two.hset("py.h", "f000", "new") == 0 and one.hget("py.h", "f000") == "new"
    assert one.hmget("py.h", ["f000", "none", "f001"]) == ["new", None, "v1"]
    assert two.hlen("py.h") == 150 and one.hexists("py.h", "f149") and not two.hexists("py.h", "none")
    assert one.hkeys("py.h") == sorted(fields) and two.hvals("py.h")[1] == "v1" and one.hstrlen("py.h", "f000") == 3
    assert two.hsetnx("py.h", "n", 5) == 1 and one.hsetnx("py.h", "n", 6) == 0 and two.hincrby("py.h", "n", -7) == -2
    assert dict(one.hscan_iter("py.h", match="f00*", count=4)) == {f"f{i:03}": "new" if i == 0 else f"v{i}"
                                                                    for i in range(10)}
    assert two.hdel("py.h", *fields) == 150 and one.hgetall("py.h") == {"n": "-2"}
    assert one.hdel("py.h", "n") == 1 and two.exists("py.h") == 0 and two.type("py.h") == "none"


def sorted_sets(one, two):
    scores = {f"m{i:03}": i / 2 for i in range(150)}
    ranked = sorted(scores.items(), key=lambda entry: entry[1])
    assert one.zadd("py.z", scores) == 150 and two.zrange("py.z", 0, -1, withscores=True) == ranked
    assert two.zcard("py.z") == 150 and one.zscore("py.z", "m003") == 1.5 and two.zscore("py.z", "none") is None
    assert one.zrevrange("py.z", 0, 1) == ["m149", "m148"] and two.zcount("py.z", 1, "(2") == 2
    assert one.zrangebyscore("py.z", "(0.5", 1.5, withscores=True) == [("m002", 1.0), ("m003", 1.5)]
    assert two.zrevrangebyscore("py.z", "+inf", 74, start=0, num=2) == ["m149", "m148"]
    assert two.zadd("py.z", {"m000": 99}, xx=True, ch=True) == 1 and one.zrange("py.z", -1, -1) == ["m000"]
    assert one.zadd("py.z", {"m000": 1}, nx=True) == 0 and two.zincrby("py.z", -99, "m000") == 0.0
    assert sorted(one.zscan_iter("py.z", count=7)) == sorted(scores.items())
    assert two.zadd("py.lex", {letter: 0 for letter in "dbac"}) == 4
    assert one.zrangebylex("py.lex", "[b", "(d") == ["b", "c"] and two.zlexcount("py.lex", "-", "+") == 4
    assert one.zrevrangebylex("py.lex", "+", "[c") == ["d", "c"]
    assert two.zrem("py.z", *scores) == 150 and one.exists("py.z") == 0 and one.delete("py.lex") == 1


def expiry_of_collections(one, two):
    assert one.hset("py.eh", "f", "x") == 1 and one.zadd("py.ez", {"m": 1}) == 1
    for key in ("py.eh", "py.ez"):
        assert two.expire(key, 100) and 0 < one.ttl(key) <= 100 and one.pexpire(key, 50_000)
        assert 0 < two.pttl(key) <= 50_000 and two.persist(key) and one.ttl(key) == -1
        assert two.expireat(key, 1) and one.exists(key) == 0 and one.type(key) == "none"
    assert two.hgetall("py.eh") == {} and two.zrange("py.ez", 0, -1) == []
    # What the ended ones had is not met in their successors.
    assert one.hset("py.eh", "g", "y") == 1 and two.hgetall("py.eh") == {"g": "y"}
    assert one.zadd("py.ez", {"n": 2}) == 1 and two.zrange("py.ez", 0, -1) == ["n"]
    assert two.delete("py.eh", "py.ez") == 2
    try:
        assert one.set("py.s", "x") and two.hget("py.s", "f")
        assert False
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE")
    assert one.delete("py.s") == 1


class Resp3:
    """A connection that has said HELLO 3. Answers are of Python's types; errors are strings that begin with '-'."""

    def __init__(self, text):
        host, port = text.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._file = self._socket.makefile("rb")
        assert self("HELLO", "3")["proto"] == 3

    def __call__(self, *arguments):
        words = [str(argument).encode() for argument in arguments]
        self._socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self._read()

    def _read(self):
        line = self._file.readline()
        assert line.endswith(b"\r\n"), line
        kind, rest = line[:1], line[1:-2].decode()
        if kind == b"$":
            return self._file.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self._read() for _ in range(int(rest))]
        if kind == b"%":
            return {self._read(): self._read() for _ in range(int(rest))}
        types = {b"+": str, b"-": lambda text: "-" + text, b":": int, b",": float, b"_": lambda text: None}
        return types[kind](rest)


def resp3(one, two):
    assert one("SET", "p3.a", "x") == "OK" and two("GET", "p3.a") == "x" and two("GET", "p3.none") is None
    assert one("MGET", "p3.a", "p3.none") == ["x", None] and two("EXPIRE", "p3.a", 100) == 1
    assert 0 < one("TTL", "p3.a") <= 100 and one("TYPE", "p3.a") == "string"
    assert one("HSET", "p3.h", "f", 1, "g", 2) == 2 and two("HGETALL", "p3.h") == {"f": "1", "g": "2"}
    assert two("HGETALL", "p3.none") == {} and one("HGET", "p3.h", "none") is None
    assert one("HMGET", "p3.h", "g", "none") == ["2", None] and two("HINCRBY", "p3.h", "f", 4) == 5
    assert one("HKEYS", "p3.h") == ["f", "g"] and one("HSCAN", "p3.h", 0) == ["0", ["f", "5", "g", "2"]]
    assert one("ZADD", "p3.z", 1.5, "a", 2, "b") == 2 and two("ZSCORE", "p3.z", "a") == 1.5
    assert two("ZRANGE", "p3.z", 0, -1) == ["a", "b"] and two("ZSCORE", "p3.z", "none") is None
    assert one("ZRANGE", "p3.z", 0, -1, "WITHSCORES") == [["a", 1.5], ["b", 2.0]]
    assert two("ZINCRBY", "p3.z", 3, "a") == 4.5 and one("ZADD", "p3.z", "INCR", 1, "b") == 3.0
    assert one("ZREVRANGEBYSCORE", "p3.z", "+inf", 4) == ["a"] and two("ZCOUNT", "p3.z", 3, 4) == 1
    assert one("RANGE", "p3.", "p3.h") == ["p3.a", "x"] and two("RANGE", "p3.h", "p3.i") == ["p3.h", None]
    assert two("RANGE", "p3.", "p4", "REV", "KEYS") == ["p3.z", "p3.h", "p3.a"]
    assert two("RANGE", "p3.", "p4", "LIMIT", 1, "KEYS") == ["p3.a"]
    cursor, met = "0", []
    for turn in range(100):
        cursor, keys = (one, two)[turn % 2]("SCAN", cursor, "MATCH", "p3.*", "COUNT", 1)
        met += keys
        if cursor == "0":
            break
    assert met == ["p3.a", "p3.h", "p3.z"]
    for key in met:
        assert one("PEXPIRE", key, 60_000) == 1 and 0 < two("PTTL", key) <= 60_000 and one("PERSIST", key) == 1
    assert one("LPUSH", "p3.l", "x").startswith("-ERR") and two("HGET", "p3.z", "f").startswith("-WRONGTYPE")
    assert two("DEL", *met) == 3 and one("EXISTS", *met) == 0


def others(one, two):
    assert one.execute_command("RANGE", "py.p.0", "py.p.11", "KEYS") == ["py.p.0", "py.p.1", "py.p.10", "py.p.100",
                                                                         "py.p.101", "py.p.102", "py.p.103", "py.p.104",
                                                                         "py.p.105", "py.p.106", "py.p.107", "py.p.108",
                                                                         "py.p.109"]
    assert two.dbsize() == 200 and one.info()["redis_version"] == "7.0.15" and one.echo("x") == "x"
    assert one.client_setname("me") and one.config_get("save") == {"save": ""}
    try:
        one.lpush("py.l", "x")
        assert False
    except redis.ResponseError as error:
        assert "lists are not served" in str(error)
    try:
        one.auth("secret")
        assert False
    except redis.RedisError as error:
        assert "without any password" in str(error)
    assert one.flushall() and two.dbsize() == 0


def main():
    one, two = (client(text) for text in sys.argv[1:3])
    strings(one, two)
    hashes(one, two)
    sorted_sets(one, two)
    expiry_of_collections(one, two)
    resp3(*(Resp3(text) for text in sys.argv[1:3]))
    pipelines(one, two)
    others(one, two)


if __name__ == "__main__":
    main()
