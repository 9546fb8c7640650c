#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "server/frontend/redis/commands.h"

namespace farleaf::server::redis {

namespace {

using Access = CommandSpec::Access;
constexpr Access kRead = Access::kRead, kWrite = Access::kWrite, kServer = Access::kServer;
constexpr int kToTheEnd = -1;

constexpr CommandSpec kCommands[] = {
    {"append", 3, Append, kWrite, 1, 1, 1},
    {"auth", -2, Auth, kServer},
    {"client", -2, ClientCommand, kServer},
    {"command", -1, CommandCommand, kServer},
    {"config", -2, ConfigCommand, kServer},
    {"dbsize", 1, DatabaseSize, kRead},
    {"decr", 2, Increment, kWrite, 1, 1, 1},
    {"decrby", 3, Increment, kWrite, 1, 1, 1},
    {"del", -2, Delete, kWrite, 1, kToTheEnd, 1},
    {"echo", 2, Echo, kServer},
    {"exists", -2, Exists, kRead, 1, kToTheEnd, 1},
    {"expire", -3, Expire, kWrite, 1, 1, 1},
    {"expireat", -3, Expire, kWrite, 1, 1, 1},
    {"expiretime", 2, TimeToLive, kRead, 1, 1, 1},
    {"flushall", -1, Flush, kWrite},
    {"flushdb", -1, Flush, kWrite},
    {"get", 2, nullptr, kRead, 1, 1, 1},
    {"getdel", 2, GetDel, kWrite, 1, 1, 1},
    {"getex", -2, GetEx, kWrite, 1, 1, 1},
    {"getrange", 4, GetRange, kRead, 1, 1, 1},
    {"getset", 3, GetSet, kWrite, 1, 1, 1},
    {"hdel", -3, HashDelete, kWrite, 1, 1, 1},
    {"hello", -1, Hello, kServer},
    {"hexists", 3, HashGet, kRead, 1, 1, 1},
    {"hget", 3, HashGet, kRead, 1, 1, 1},
    {"hgetall", 2, HashGetAll, kRead, 1, 1, 1},
    {"hincrby", 4, HashIncrement, kWrite, 1, 1, 1},
    {"hkeys", 2, HashGetAll, kRead, 1, 1, 1},
    {"hlen", 2, CollectionLength, kRead, 1, 1, 1},
    {"hmget", -3, HashMultiGet, kRead, 1, 1, 1},
    {"hmset", -4, HashSet, kWrite, 1, 1, 1},
    {"hscan", -3, CollectionScan, kRead, 1, 1, 1},
    {"hset", -4, HashSet, kWrite, 1, 1, 1},
    {"hsetnx", 4, HashSetNx, kWrite, 1, 1, 1},
    {"hstrlen", 3, HashGet, kRead, 1, 1, 1},
    {"hvals", 2, HashGetAll, kRead, 1, 1, 1},
    {"incr", 2, Increment, kWrite, 1, 1, 1},
    {"incrby", 3, Increment, kWrite, 1, 1, 1},
    {"incrbyfloat", 3, IncrementByFloat, kWrite, 1, 1, 1},
    {"info", -1, Info, kServer},
    {"mget", -2, MultiGet, kRead, 1, kToTheEnd, 1},
    {"mset", -3, MultiSet, kWrite, 1, kToTheEnd, 2},
    {"persist", 2, Persist, kWrite, 1, 1, 1},
    {"pexpire", -3, Expire, kWrite, 1, 1, 1},
    {"pexpireat", -3, Expire, kWrite, 1, 1, 1},
    {"pexpiretime", 2, TimeToLive, kRead, 1, 1, 1},
    {"ping", -1, Ping, kServer},
    {"psetex", 4, SetEx, kWrite, 1, 1, 1},
    {"pttl", 2, TimeToLive, kRead, 1, 1, 1},
    {"quit", -1, nullptr, kServer},
    {"range", -3, Range, kRead},
    {"scan", -2, Scan, kRead},
    {"select", 2, Select, kServer},
    {"set", -3, Set, kWrite, 1, 1, 1},
    {"setex", 4, SetEx, kWrite, 1, 1, 1},
    {"setnx", 3, SetNx, kWrite, 1, 1, 1},
    {"setrange", 4, SetRange, kWrite, 1, 1, 1},
    {"slowlog", -2, SlowLogCommand, kServer},
    {"strlen", 2, StringLength, kRead, 1, 1, 1},
    {"substr", 4, GetRange, kRead, 1, 1, 1},
    {"time", 1, Time, kServer},
    {"ttl", 2, TimeToLive, kRead, 1, 1, 1},
    {"type", 2, Type, kRead, 1, 1, 1},
    {"unlink", -2, Delete, kWrite, 1, kToTheEnd, 1},
    {"zadd", -4, SortedSetAdd, kWrite, 1, 1, 1},
    {"zcard", 2, CollectionLength, kRead, 1, 1, 1},
    {"zcount", 4, SortedSetRange, kRead, 1, 1, 1},
    {"zincrby", 4, SortedSetIncrement, kWrite, 1, 1, 1},
    {"zlexcount", 4, SortedSetRange, kRead, 1, 1, 1},
    {"zrange", -4, SortedSetRange, kRead, 1, 1, 1},
    {"zrangebylex", -4, SortedSetRange, kRead, 1, 1, 1},
    {"zrangebyscore", -4, SortedSetRange, kRead, 1, 1, 1},
    {"zrem", -3, SortedSetRemove, kWrite, 1, 1, 1},
    {"zrevrange", -4, SortedSetRange, kRead, 1, 1, 1},
    {"zrevrangebylex", -4, SortedSetRange, kRead, 1, 1, 1},
    {"zrevrangebyscore", -4, SortedSetRange, kRead, 1, 1, 1},
    {"zscan", -3, CollectionScan, kRead, 1, 1, 1},
    {"zscore", 3, SortedSetScore, kRead, 1, 1, 1},
};
static_assert(std::size(kCommands) <= kCommandsMax);
static_assert(std::is_sorted(std::begin(kCommands), std::end(kCommands),
                             [](const auto& a, const auto& b) { return a.name < b.name; }));

constexpr size_t kNameBytesMax = 24;

/// Commands of Redis that are not served: why, and how their names begin or what they are (names separated by
/// spaces).
struct Refused {
  std::string_view names, why;
};
constexpr Refused kRefused[] = {
    {"msetnx", "keys are written one by one, so that it would not be atomic"},
    {"multi exec discard watch unwatch",
     "transactions are not served: there is no instant common to several keys"},
    {"eval evalsha eval_ro evalsha_ro script fcall fcall_ro function", "scripts are not served"},
    {"subscribe unsubscribe psubscribe punsubscribe publish pubsub ssubscribe sunsubscribe "
     "spublish monitor",
     "messages are not served"},
    {"lpush rpush lpushx rpushx lpop rpop lrange llen lindex linsert lset lrem ltrim lpos lmove "
     "lmpop rpoplpush "
     "blpop brpop blmove blmpop brpoplpush",
     "lists are not served"},
    {"sadd srem smembers sismember smismember scard spop srandmember smove sinter sintercard "
     "sinterstore sunion "
     "sunionstore sdiff sdiffstore sscan",
     "sets are not served"},
    {"xadd xrange xrevrange xread xreadgroup xlen xdel xtrim xinfo xgroup xack xclaim xautoclaim "
     "xpending xsetid",
     "streams are not served"},
    {"geoadd geodist geohash geopos georadius georadius_ro georadiusbymember georadiusbymember_ro "
     "geosearch "
     "geosearchstore",
     "geographic indexes are not served"},
    {"hincrbyfloat", "fields are added to in whole numbers only, by HINCRBY"},
    {"hrandfield zrandmember zrank zrevrank",
     "members' places are not kept, and counting up to one would hold others up"},
    {"zmscore", "ask for one score at a time, by ZSCORE"},
    {"zpopmin zpopmax bzpopmin bzpopmax zmpop bzmpop",
     "there is no instant at which a member is both the first and removed"},
    {"zremrangebyscore zremrangebyrank zremrangebylex",
     "there is no instant common to several members; use ZRANGE and ZREM"},
    {"zrangestore zinter zinterstore zintercard zunion zunionstore zdiff zdiffstore",
     "there is no instant common to several keys"},
    {"pfadd pfcount pfmerge pfdebug pfselftest", "HyperLogLogs are not served"},
    {"setbit getbit bitcount bitop bitpos bitfield bitfield_ro", "bit operations are not served"},
    {"keys", "it would hold everything up; use SCAN or RANGE"},
    {"rename renamenx copy lcs", "there is no instant common to several keys"},
    {"move swapdb", "there is one database"},
    {"sort sort_ro", "RANGE and ZRANGE are in order; others have to be sorted by their clients"},
    {"object dump restore restore-asking migrate", "values are not kept as Redis keeps them"},
    {"touch", "when a key was last read is not kept, since reads would have to write"},
    {"randomkey", "keys' places are not kept; use SCAN or RANGE"},
    {"wait", "there are no replicas to wait for"},
    {"save bgsave bgrewriteaof lastsave replicaof slaveof sync psync replconf role failover "
     "cluster readonly "
     "readwrite asking",
     "memory servers keep the data, and compute servers share it"},
    {"shutdown debug module", "clients do not control the server"},
    {"acl", "there is one user; who starts the server names the passwords"},
    {"latency memory lolwut", "use INFO and SLOWLOG, or the server's metrics"},
    {"reset", "connect again instead"},
};

bool HasWord(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

/// At most so many bytes, without what a line cannot hold.
std::string Shown(std::string_view text, size_t bytes_max) {
  std::string shown(text.substr(0, bytes_max));
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return shown;
}

}  // namespace

std::span<const CommandSpec> Commands() { return kCommands; }

const CommandSpec* FindCommand(std::string_view name) {
  if (name.empty() || name.size() > kNameBytesMax) return nullptr;
  char lower[kNameBytesMax];
  for (size_t i = 0; i < name.size(); ++i) {
    lower[i] = static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  const std::string_view wanted(lower, name.size());
  const auto* const found =
      std::lower_bound(std::begin(kCommands), std::end(kCommands), wanted,
                       [](const CommandSpec& a, std::string_view b) { return a.name < b; });
  return found != std::end(kCommands) && found->name == wanted ? found : nullptr;
}

std::string RefusalOf(std::span<const std::string_view> arguments) {
  const std::string name = LowerCase(arguments[0].substr(0, 64));
  for (const Refused& refused : kRefused) {
    if (!HasWord(refused.names, name)) continue;
    return fmt::format("ERR command '{}' is not supported by this server: {}", name, refused.why);
  }
  std::string text =
      "ERR unknown command '" + Shown(arguments[0], 128) + "', with args beginning with: ";
  for (size_t i = 1; i < arguments.size() && text.size() < 256; ++i) {
    text += "'" + Shown(arguments[i], 64) + "' ";
  }
  return text;
}

}  // namespace farleaf::server::redis
