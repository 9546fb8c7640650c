// Runs one request of the native protocol against a TreeHost.
//
// Thread rule: a coroutine on the worker of its OpContext.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/protocol.h"
#include "index/range_index.h"
#include "server/frontend/tree_host.h"

namespace farleaf::server {

/// What a response's views look at.
struct ResponseStorage {
  std::string text;  ///< a value, a continuation, a message or the counters
  std::vector<std::optional<std::string>> values;
  std::vector<index::KeyValue> rows;
};

/// The smallest key above `key` in a tree of this kind; nullopt if there is none.
std::optional<std::string> SuccessorKey(std::string_view key, const protocol::TreeInfo& tree);

/// Runs a request on `tree` (its index is null if the request names none that is open) or on the
/// host. Fills the response's payload; its header and failures are the caller's. kServerStats and
/// kPing are not served here.
dsm::Task<Status> Execute(TreeHost& host, const HostedTree& tree, dsm::OpContext& op,
                          const protocol::Request& request, protocol::Response* response,
                          ResponseStorage* storage);

}  // namespace farleaf::server
