// Runs one command of memcached's protocol on records, and appends its answer.
//
// Thread rule: coroutines on the worker of their OpContext.
#pragma once

#include <string>

#include "server/frontend/memcached/command.h"
#include "server/frontend/memcached/counters.h"
#include "server/records/record_store.h"
#include "server/records/string_rules.h"

namespace farleaf::server::memcached {

struct Call {
  dsm::OpContext& op;
  const RecordStore& store;
  Counters& counters;
  std::string& key;    ///< room for the tree's key
  std::string& value;  ///< room for a record
  std::string& out;    ///< answers go there
  size_t value_bytes_max;
};

/// When an exptime of the protocol has passed, from now: 0 never, up to 30 days seconds from now, otherwise
/// seconds since 1970; a negative one has.
uint64_t ExpiryMs(int64_t exptime, uint64_t now_ms);

/// The tree's key of a memcached key, in `buffer`.
void MakeTreeKey(std::string_view key, std::string* buffer);

void AppendLine(std::string_view line, std::string* out);
void AppendNumber(uint64_t number, std::string* out);
/// "VALUE key flags bytes [cas]", and the data. REQUIRES: IsKey(key).
struct ValueForm {
  bool with_cas = false;
};
void AppendValue(std::string_view key, const Record& record, ValueForm form, std::string* out);
/// "SERVER_ERROR unavailable: ...", on one line.
void AppendFailure(const Status& status, std::string* out);

/// To a command that stores.
std::string_view StoreAnswer(RuleOutcome outcome);
/// gat, gats: each key by itself. A failure, of which the caller tells the client.
dsm::Task<Status> ExecuteGetAndTouch(Call call, const Command& command);
/// set, add, replace, append, prepend, cas, incr, decr, touch, delete.
dsm::Task<Status> ExecuteWrite(Call call, const Command& command);
/// mg, ms, md, ma, me.
dsm::Task<Status> ExecuteMeta(Call call, const Command& command);
/// What is left of a key whose new value is too large: nothing, lest it be taken for the new one.
dsm::Task<Status> DeleteOutdated(Call call, const Command& command);

}  // namespace farleaf::server::memcached
