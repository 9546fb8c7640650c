#include "test/support/redis_expiry_table.h"

#include <string_view>

namespace farleaf::test {

namespace {

/// '@' stands for the key. `looks`: what is asked behind it.
struct ExpiredQuestion {
  std::string request, answer;
  Exchange looks;
};

const std::string kNil = "$-1\r\n", kZero = ":0\r\n", kOne = ":1\r\n", kEmpty = "*0\r\n",
                  kOk = "+OK\r\n", kNoScan = "*2\r\n$1\r\n0\r\n*0\r\n";
const Exchange kGone{"TYPE @\r\nEXISTS @\r\n", "+none\r\n:0\r\n"};

std::vector<ExpiredQuestion> ExpiredReads() {
  return {
      {"EXISTS @ @\r\n", kZero, kGone},
      {"TYPE @\r\n", "+none\r\n", kGone},
      {"TTL @\r\n", ":-2\r\n", kGone},
      {"PTTL @\r\n", ":-2\r\n", kGone},
      {"EXPIRETIME @\r\n", ":-2\r\n", kGone},
      {"PEXPIRETIME @\r\n", ":-2\r\n", kGone},
      {"GET @\r\n", kNil, kGone},
      {"MGET @ @\r\n", "*2\r\n$-1\r\n$-1\r\n", kGone},
      {"STRLEN @\r\n", kZero, kGone},
      {"GETRANGE @ 0 -1\r\n", "$0\r\n\r\n", kGone},
      {"HGET @ a\r\n", kNil, kGone},
      {"HMGET @ a b\r\n", "*2\r\n$-1\r\n$-1\r\n", kGone},
      {"HGETALL @\r\n", kEmpty, kGone},
      {"HKEYS @\r\n", kEmpty, kGone},
      {"HVALS @\r\n", kEmpty, kGone},
      {"HLEN @\r\n", kZero, kGone},
      {"HEXISTS @ a\r\n", kZero, kGone},
      {"HSTRLEN @ a\r\n", kZero, kGone},
      {"HSCAN @ 0\r\n", kNoScan, kGone},
      {"ZSCORE @ a\r\n", kNil, kGone},
      {"ZCARD @\r\n", kZero, kGone},
      {"ZCOUNT @ -inf +inf\r\n", kZero, kGone},
      {"ZLEXCOUNT @ - +\r\n", kZero, kGone},
      {"ZRANGE @ 0 -1 WITHSCORES\r\n", kEmpty, kGone},
      {"ZREVRANGE @ 0 -1\r\n", kEmpty, kGone},
      {"ZRANGEBYSCORE @ -inf +inf\r\n", kEmpty, kGone},
      {"ZREVRANGEBYSCORE @ +inf -inf\r\n", kEmpty, kGone},
      {"ZRANGEBYLEX @ - +\r\n", kEmpty, kGone},
      {"ZREVRANGEBYLEX @ + -\r\n", kEmpty, kGone},
      {"ZSCAN @ 0\r\n", kNoScan, kGone},
  };
}

std::vector<ExpiredQuestion> ExpiredChangesOfNothing() {
  return {
      {"DEL @\r\n", kZero, kGone},
      {"UNLINK @\r\n", kZero, kGone},
      {"PERSIST @\r\n", kZero, kGone},
      {"EXPIRE @ 100\r\n", kZero, kGone},
      {"PEXPIREAT @ 99999999999999\r\n", kZero, kGone},
      {"SET @ x XX\r\n", kNil, kGone},
      {"GETDEL @\r\n", kNil, kGone},
      {"GETEX @ EX 100\r\n", kNil, kGone},
      {"HDEL @ a b\r\n", kZero, kGone},
      {"ZREM @ a b\r\n", kZero, kGone},
      {"ZADD @ XX 1 a\r\n", kZero, kGone},
      {"ZADD @ XX INCR 1 a\r\n", kNil, kGone},
  };
}

/// Nothing is left of what was there, and nothing expires again.
std::vector<ExpiredQuestion> ExpiredKeysMadeAnew() {
  const Exchange is_x{"GET @\r\nTTL @\r\n", "$1\r\nx\r\n:-1\r\n"};
  const Exchange is_5{"GET @\r\nTTL @\r\n", "$1\r\n5\r\n:-1\r\n"};
  const Exchange has_field{"HGETALL @\r\nHLEN @\r\nHGET @ b\r\nTTL @\r\n",
                           "*2\r\n$1\r\na\r\n$1\r\n5\r\n:1\r\n$-1\r\n:-1\r\n"};
  const Exchange has_member{
      "ZRANGE @ 0 -1 WITHSCORES\r\nZCARD @\r\nZCOUNT @ 0 3\r\nZSCORE @ b\r\nTTL @\r\n",
      "*2\r\n$1\r\na\r\n$1\r\n5\r\n:1\r\n:0\r\n$-1\r\n:-1\r\n"};
  return {
      {"SET @ x\r\n", kOk, is_x},
      {"SET @ x NX\r\n", kOk, is_x},
      {"SET @ x KEEPTTL\r\n", kOk, is_x},
      {"SET @ x GET\r\n", kNil, is_x},
      {"SETNX @ x\r\n", kOne, is_x},
      {"GETSET @ x\r\n", kNil, is_x},
      {"MSET @ x\r\n", kOk, is_x},
      {"APPEND @ x\r\n", kOne, is_x},
      {"SETRANGE @ 0 x\r\n", kOne, is_x},
      {"INCRBY @ 5\r\n", ":5\r\n", is_5},
      {"INCRBYFLOAT @ 5\r\n", "$1\r\n5\r\n", is_5},
      {"HSET @ a 5\r\n", kOne, has_field},
      {"HSET @ b 6 a 5\r\nHDEL @ b\r\n", ":2\r\n:1\r\n", has_field},
      {"HSETNX @ a 5\r\n", kOne, has_field},
      {"HMSET @ a 5\r\n", kOk, has_field},
      {"HINCRBY @ a 5\r\n", ":5\r\n", has_field},
      {"ZADD @ 5 a\r\n", kOne, has_member},
      {"ZADD @ 6 b 5 a\r\nZREM @ b\r\n", ":2\r\n:1\r\n", has_member},
      {"ZADD @ NX 5 a\r\n", kOne, has_member},
      {"ZADD @ LT CH 5 a\r\n", kOne, has_member},
      {"ZADD @ INCR 5 a\r\n", "$1\r\n5\r\n", has_member},
      {"ZINCRBY @ 5 a\r\n", "$1\r\n5\r\n", has_member},
  };
}

std::string WithKey(std::string_view text, const std::string& key) {
  std::string with;
  for (const char c : text) {
    if (c == '@') {
      with += key;
    } else {
      with += c;
    }
  }
  return with;
}

}  // namespace

RedisExpiryTable RedisExpiredTable() {
  const std::string expire = "PEXPIRE @ " + std::to_string(kRedisExpiryMs) + "\r\n";
  const Exchange kinds[] = {{"SET @ 1\r\n" + expire, "+OK\r\n:1\r\n"},
                            {"HSET @ a 1 b 2\r\n" + expire, ":2\r\n:1\r\n"},
                            {"ZADD @ 1 a 2 b\r\n" + expire, ":2\r\n:1\r\n"}};
  const std::string only = "*2\r\n$1\r\n0\r\n*1\r\n$7\r\nt.lives\r\n";
  RedisExpiryTable table;
  table.before = {{"HSET t.lives a 1\r\n", kOne}};
  // Of all keys, before any is met: at one server, and at the other.
  for (int i = 0; i < 2; ++i) {
    table.behind.push_back({"SCAN 0 MATCH t.* COUNT 10000\r\n", only});
    table.behind.push_back({"SCAN 0 MATCH t.* COUNT 10000 TYPE zset\r\n", kNoScan});
    table.behind.push_back({"SCAN 0 MATCH t.* COUNT 10000 TYPE hash\r\n", only});
  }
  for (const auto& questions : {ExpiredReads(), ExpiredChangesOfNothing(), ExpiredKeysMadeAnew()}) {
    for (const ExpiredQuestion& question : questions) {
      for (const Exchange& kind : kinds) {
        const std::string key = "t." + std::to_string(table.before.size());
        table.before.push_back({WithKey(kind.request, key), kind.answer});
        table.behind.push_back({WithKey(question.request, key), question.answer});
        table.behind.push_back({WithKey(question.looks.request, key), question.looks.answer});
      }
    }
  }
  return table;
}

std::vector<Exchange> RedisOwnExpiredTable() {
  const std::string only = "*2\r\n$7\r\nt.lives\r\n$-1\r\n";
  return {{"RANGE t. t.~\r\n", only},
          {"RANGE t. t.~ REV KEYS\r\n", "*1\r\n$7\r\nt.lives\r\n"},
          {"RANGE t. t.~ LIMIT 1\r\n", only}};
}

}  // namespace farleaf::test
