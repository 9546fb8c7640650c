// The commands of Redis' protocol, one function each; table.cc says how they are called and with how many
// arguments.
//
// Thread rule: coroutines on the worker of their OpContext.
#pragma once

#include "server/frontend/redis/command.h"

namespace farleaf::server::redis {

// server_commands.cc
dsm::Task<Status> Ping(Call call);
dsm::Task<Status> Echo(Call call);
dsm::Task<Status> Select(Call call);
dsm::Task<Status> ClientCommand(Call call);
dsm::Task<Status> CommandCommand(Call call);
dsm::Task<Status> ConfigCommand(Call call);
dsm::Task<Status> Info(Call call);
dsm::Task<Status> Hello(Call call);
dsm::Task<Status> Auth(Call call);
dsm::Task<Status> Time(Call call);
dsm::Task<Status> SlowLogCommand(Call call);

// strings.cc
dsm::Task<Status> Set(Call call);
dsm::Task<Status> SetNx(Call call);
dsm::Task<Status> SetEx(Call call);
dsm::Task<Status> GetSet(Call call);
dsm::Task<Status> GetDel(Call call);
dsm::Task<Status> GetEx(Call call);
dsm::Task<Status> MultiGet(Call call);
dsm::Task<Status> MultiSet(Call call);
dsm::Task<Status> Append(Call call);
dsm::Task<Status> StringLength(Call call);
dsm::Task<Status> Increment(Call call);
dsm::Task<Status> IncrementByFloat(Call call);
dsm::Task<Status> GetRange(Call call);
dsm::Task<Status> SetRange(Call call);

// keys.cc
dsm::Task<Status> Delete(Call call);
dsm::Task<Status> Exists(Call call);
dsm::Task<Status> Expire(Call call);
dsm::Task<Status> Persist(Call call);
dsm::Task<Status> TimeToLive(Call call);
dsm::Task<Status> Type(Call call);

// hashes.cc
dsm::Task<Status> HashSet(Call call);
dsm::Task<Status> HashSetNx(Call call);
dsm::Task<Status> HashGet(Call call);
dsm::Task<Status> HashMultiGet(Call call);
dsm::Task<Status> HashGetAll(Call call);
dsm::Task<Status> HashDelete(Call call);
dsm::Task<Status> HashIncrement(Call call);

// sorted_sets.cc
dsm::Task<Status> SortedSetAdd(Call call);
dsm::Task<Status> SortedSetIncrement(Call call);
dsm::Task<Status> SortedSetRemove(Call call);
dsm::Task<Status> SortedSetScore(Call call);

// sorted_set_ranges.cc
dsm::Task<Status> SortedSetRange(Call call);

// collection_scans.cc
dsm::Task<Status> CollectionLength(Call call);
dsm::Task<Status> CollectionScan(Call call);

// keyspace_commands.cc
dsm::Task<Status> DatabaseSize(Call call);
dsm::Task<Status> Flush(Call call);
dsm::Task<Status> Scan(Call call);
dsm::Task<Status> Range(Call call);

}  // namespace farleaf::server::redis
