#!/usr/bin/env python3
"""What an application does with the redis package, against two servers of the same keys.

    redis_check.py HOST:PORT HOST:PORT

Exit code 0 if all was as it should be.
"""

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
    pipelines(one, two)
    others(one, two)


if __name__ == "__main__":
    main()
