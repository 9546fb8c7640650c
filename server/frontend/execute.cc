#include "server/frontend/execute.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farleaf::server {

using dsm::OpContext;
using dsm::Task;
using protocol::ConditionOutcome;
using protocol::Opcode;
using protocol::Request;
using protocol::Response;

namespace {

constexpr size_t kMultiGetBytesMax = size_t{16} * protocol::kPieceBytes;

Task<Status> ExecuteGet(index::RangeIndex& tree, OpContext& op, const Request& request,
                        Response* response, ResponseStorage* storage) {
  const Result<bool> found = co_await tree.Get(op, request.key, &storage->text);
  if (!found.ok()) co_return found.status();
  if (*found) response->value = storage->text;
  co_return Status::Ok();
}

Task<Status> ExecuteMultiGet(index::RangeIndex& tree, OpContext& op, const Request& request,
                             Response* response, ResponseStorage* storage) {
  const Status status = co_await tree.MultiGet(op, request.keys, &storage->values);
  if (!status.ok()) co_return status;
  size_t bytes = 0;
  for (const auto& value : storage->values) {
    bytes += value ? value->size() : 0;
    if (!response->values.empty() && bytes > kMultiGetBytesMax) break;
    response->values.emplace_back(value);
  }
  co_return Status::Ok();
}

/// One piece of a scan: the rows that reach kPieceBytes, and where to go on.
Task<Status> ExecuteScan(const HostedTree& tree, OpContext& op, const Request& request,
                         Response* response, ResponseStorage* storage) {
  index::ScanRange range;
  range.start = request.key;
  range.end = request.end;
  range.limit = request.limit;
  range.bytes_max = protocol::kPieceBytes;
  range.direction =
      request.reverse ? index::ScanDirection::kReverse : index::ScanDirection::kForward;
  if (request.keys_only) range.content = index::ScanContent::kKeys;
  std::vector<index::KeyValue>& rows = storage->rows;
  const Status status = co_await tree.index->Scan(op, range, &rows);
  if (!status.ok()) co_return status;
  size_t bytes = 0;
  response->keys_only = request.keys_only;
  response->rows.reserve(rows.size());
  for (const index::KeyValue& row : rows) {
    response->rows.push_back({row.key, row.value});
    bytes += row.key.size() + row.value.size();
  }
  if (rows.size() == request.limit || bytes < range.bytes_max) co_return Status::Ok();
  auto next =
      request.reverse ? std::optional(rows.back().key) : SuccessorKey(rows.back().key, tree.info);
  if (next) {
    storage->text = std::move(*next);
    response->more = true;
    response->continuation = storage->text;
  }
  co_return Status::Ok();
}

Task<Status> ExecuteWrite(index::RangeIndex& tree, OpContext& op, const Request& request,
                          Response* response) {
  switch (request.opcode) {
    case Opcode::kInsert: {
      const Result<bool> changed = co_await tree.Insert(op, request.key, request.value);
      if (!changed.ok()) co_return changed.status();
      response->changed = *changed;
      co_return Status::Ok();
    }
    case Opcode::kPut: {
      const Result<bool> changed = co_await tree.Put(op, request.key, request.value);
      if (!changed.ok()) co_return changed.status();
      response->changed = *changed;
      co_return Status::Ok();
    }
    case Opcode::kUpdate: {
      const Result<bool> changed = co_await tree.Update(op, request.key, request.value);
      if (!changed.ok()) co_return changed.status();
      response->changed = *changed;
      co_return Status::Ok();
    }
    default: {
      const Result<bool> changed = co_await tree.Delete(op, request.key);
      if (!changed.ok()) co_return changed.status();
      response->changed = *changed;
      co_return Status::Ok();
    }
  }
}

Task<Status> ExecuteConditional(index::RangeIndex& tree, OpContext& op, const Request& request,
                                Response* response, ResponseStorage* storage) {
  const Request* const wanted = &request;
  const index::ModifyFunction modify = [wanted, storage](std::optional<std::string_view> current,
                                                         std::string* replacement) {
    if (!current) return index::ModifyAction::kKeep;
    if (*current != wanted->expected) {
      if (wanted->opcode == Opcode::kCompareAndSet) storage->text.assign(*current);
      return index::ModifyAction::kKeep;
    }
    if (wanted->opcode == Opcode::kDeleteIf) return index::ModifyAction::kDelete;
    replacement->assign(wanted->value);
    return index::ModifyAction::kWrite;
  };
  const auto result = co_await tree.ReadModifyWrite(op, request.key, modify);
  if (!result.ok()) co_return result.status();
  if (!result->existed) {
    response->outcome = ConditionOutcome::kAbsent;
  } else if (result->action == index::ModifyAction::kKeep) {
    response->outcome = ConditionOutcome::kDifferent;
    response->current = storage->text;
  }
  co_return Status::Ok();
}

Status CounterFailure(std::string_view key, std::string why) {
  return Status::InvalidArgument("key \"" + std::string(key.substr(0, 64)) +
                                 "\": " + std::move(why));
}

Task<Status> ExecuteAdd(index::RangeIndex& tree, OpContext& op, const Request& request,
                        Response* response) {
  struct Sum {
    const Request* wanted;
    Status failure;
    int64_t result = 0;
  } sum{&request, {}, 0};
  const index::ModifyFunction modify = [at = &sum](std::optional<std::string_view> current,
                                                   std::string* replacement) {
    const Request& wanted = *at->wanted;
    at->failure = Status::Ok();
    int64_t before = wanted.initial.value_or(0);
    if (current && current->size() != protocol::kCounterBytes) {
      at->failure = CounterFailure(wanted.key, "a value of " + std::to_string(current->size()) +
                                                   " bytes is no counter, which has 8");
    } else if (current) {
      before = static_cast<int64_t>(LoadBig64(current->data()));
    } else if (!wanted.initial) {
      at->failure = Status::NotFound("no counter to add to, and no initial value was given");
    }
    if (at->failure.ok() && __builtin_add_overflow(before, wanted.delta, &at->result)) {
      at->failure =
          CounterFailure(wanted.key, std::to_string(before) + " + " + std::to_string(wanted.delta) +
                                         " does not fit 64 bits with sign");
    }
    if (!at->failure.ok()) return index::ModifyAction::kKeep;
    replacement->resize(protocol::kCounterBytes);
    StoreBig64(replacement->data(), static_cast<uint64_t>(at->result));
    return index::ModifyAction::kWrite;
  };
  const auto result = co_await tree.ReadModifyWrite(op, request.key, modify);
  if (!result.ok()) co_return result.status();
  response->number = sum.result;
  co_return sum.failure;
}

Task<Status> ExecuteOnHost(TreeHost& host, OpContext& op, const Request& request,
                           Response* response) {
  if (request.opcode == Opcode::kListTrees) {
    auto trees = co_await host.List(op);
    if (!trees.ok()) co_return trees.status();
    response->trees = std::move(*trees);
    co_return Status::Ok();
  }
  if (request.name.empty()) co_return Status::InvalidArgument("a tree without a name");
  if (request.opcode == Opcode::kOpenTree) {
    const auto opened = co_await host.Open(op, request.name);
    if (!opened.ok()) co_return opened.status();
    response->trees = {opened->info};
    co_return Status::Ok();
  }
  const NewTree tree{std::string(request.name), request.layout, request.geometry};
  const auto created = co_await host.Create(op, tree);
  if (!created.ok()) co_return created.status();
  response->trees = {created->info};
  co_return Status::Ok();
}

}  // namespace

std::optional<std::string> SuccessorKey(std::string_view key, const protocol::TreeInfo& tree) {
  std::string next(key);
  const bool fixed = tree.layout == protocol::TreeLayout::kFixed8;
  if (!fixed && next.size() < tree.key_bytes_max) {
    next.push_back('\0');
    return next;
  }
  // No longer key fits: the next one differs within these bytes.
  size_t at = next.size();
  while (at > 0 && next[at - 1] == '\xff') --at;
  if (at == 0) return std::nullopt;
  next[at - 1] = static_cast<char>(next[at - 1] + 1);
  if (!fixed) {
    next.resize(at);
  } else {
    std::fill(next.begin() + static_cast<std::ptrdiff_t>(at), next.end(), '\0');
  }
  return next;
}

Task<Status> Execute(TreeHost& host, const HostedTree& tree, OpContext& op, const Request& request,
                     Response* response, ResponseStorage* storage) {
  switch (request.opcode) {
    case Opcode::kListTrees:
    case Opcode::kOpenTree:
    case Opcode::kCreateTree: {
      const Status status = co_await ExecuteOnHost(host, op, request, response);
      co_return status;
    }
    default:
      break;
  }
  if (tree.index == nullptr) {
    co_return Status::NotFound("tree id " + std::to_string(request.tree) +
                               " is not open at this server; open the tree by name first");
  }
  switch (request.opcode) {
    case Opcode::kGet: {
      const Status status = co_await ExecuteGet(*tree.index, op, request, response, storage);
      co_return status;
    }
    case Opcode::kMultiGet: {
      const Status status = co_await ExecuteMultiGet(*tree.index, op, request, response, storage);
      co_return status;
    }
    case Opcode::kScan: {
      const Status status = co_await ExecuteScan(tree, op, request, response, storage);
      co_return status;
    }
    case Opcode::kDeleteIf:
    case Opcode::kCompareAndSet: {
      const Status status =
          co_await ExecuteConditional(*tree.index, op, request, response, storage);
      co_return status;
    }
    case Opcode::kAdd: {
      const Status status = co_await ExecuteAdd(*tree.index, op, request, response);
      co_return status;
    }
    default: {
      const Status status = co_await ExecuteWrite(*tree.index, op, request, response);
      co_return status;
    }
  }
}

}  // namespace farleaf::server
