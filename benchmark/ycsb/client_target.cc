#include "benchmark/ycsb/client_target.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "client/session.h"
#include "client/tls.h"

namespace farleaf::ycsb {

namespace {

using client::ConditionOutcome;
using client::SessionTree;
using client::TreeLayout;

Result<std::unique_ptr<client::Session>> Connect(const std::string& url,
                                                 const TargetOptions& options, const Clock* clock) {
  client::Options session_options;
  session_options.deadline_ms = options.operation_timeout_ms;
  session_options.clock = clock;
  const ClientAccess& access = options.access;
  session_options.password_file = access.password_file;
  if (access.tls) {
    auto tls = client::NewTls({.ca_file = access.tls_ca_file,
                               .certificate_file = access.tls_certificate_file,
                               .key_file = access.tls_key_file});
    if (!tls.ok()) return tls.status();
    session_options.transport = std::move(*tls);
  }
  return client::Session::Connect(url, session_options);
}

Result<SessionTree> OpenTree(client::Session& session, const TargetOptions& options) {
  const TreeLayout layout =
      options.key_layout == KeyLayout::kFixed8 ? TreeLayout::kFixed8 : TreeLayout::kBytes;
  if (options.create_tree) {
    auto created = session.CreateTree(
        {.name = options.tree,
         .layout = layout,
         .geometry = {.leaf_bytes = options.leaf_bytes,
                      .node_bytes = options.node_bytes,
                      .leaf_layout = options.sorted_leaves ? client::LeafLayout::kSorted
                                                           : client::LeafLayout::kDefault}});
    if (created.ok() || created.status().code() != StatusCode::kAlreadyExists) return created;
  }
  auto tree = session.OpenTree(options.tree);
  if (tree.ok() && tree->info().layout != layout) {
    const std::string there(client::protocol::TreeLayoutName(tree->info().layout));
    return Status::InvalidArgument("tree '" + options.tree + "' is of layout " + there +
                                   ": run with -p farleaf.keys=" + there);
  }
  return tree;
}

/// `in_flight` operations on one connection. A callback only notes that its operation has ended:
/// the next one is started by Run's loop, so that the stack does not grow when one fails at once.
class ClientSession final : public Session {
 public:
  ClientSession(std::unique_ptr<client::Session> session, SessionTree tree)
      : session_(std::move(session)), tree_(std::move(tree)) {}

  Status Run(OperationSource& source, uint64_t in_flight) override {
    source_ = &source;
    slots_ = std::vector<Operation>(in_flight);
    for (Operation& slot : slots_) ended_.push_back(&slot);
    while (!ended_.empty() || !waiting_.empty() || running_ > 0) {
      TakeNext();
      const uint64_t wait_ms = StartDue();
      if (running_ > 0 || !waiting_.empty()) session_->Poll(ended_.empty() ? wait_ms : 0);
    }
    return Status::Ok();
  }

 private:
  static constexpr uint64_t kPollMsMax = 50;  // so that a stop is noticed

  /// Gives every slot whose operation has ended its next one.
  void TakeNext() {
    std::vector<Operation*> ended;
    ended.swap(ended_);
    for (Operation* slot : ended) {
      if (source_->Next(slot)) waiting_.push_back(slot);
    }
  }
  /// Starts the waiting operations that are due. Returns for how long nothing else will be.
  uint64_t StartDue() {
    const uint64_t now_ns = session_->clock().NowNs();
    uint64_t next_ns = now_ns + kPollMsMax * kNsPerMs;
    std::vector<Operation*> waiting;
    waiting.swap(waiting_);
    for (Operation* slot : waiting) {
      if (slot->due_ns > now_ns && !source_->stopped()) {
        next_ns = std::min(next_ns, slot->due_ns);
        waiting_.push_back(slot);
      } else if (source_->Blocked(*slot) && !source_->stopped()) {
        waiting_.push_back(slot);
      } else if (source_->Begin(slot)) {
        ++running_;
        Start(slot);
      }
    }
    // Rounded down: the last millisecond is polled through.
    return (next_ns - now_ns) / kNsPerMs;
  }

  void Start(Operation* slot) {
    switch (slot->kind) {
      case OpKind::kRead:
        tree_.GetAsync(slot->key, [this, slot](Result<client::Value> value) {
          TakeValue(slot, std::move(value));
          End(slot);
        });
        return;
      case OpKind::kUpdate:
        tree_.UpdateAsync(slot->key, slot->value, [this, slot](Result<bool> updated) {
          slot->status = updated.status();
          slot->found = updated.ok() && *updated;
          End(slot);
        });
        return;
      case OpKind::kInsert:
        tree_.InsertAsync(slot->key, slot->value, [this, slot](Result<bool> inserted) {
          slot->status = inserted.status();
          slot->found = inserted.ok() && !*inserted;
          End(slot);
        });
        return;
      case OpKind::kScan:
        StartScan(slot);
        return;
      case OpKind::kReadModifyWrite:
        StartReadModifyWrite(slot);
        return;
    }
  }
  void StartScan(Operation* slot) {
    const client::ScanRange range{
        .start = slot->key, .end = std::nullopt, .limit = slot->scan_length, .reverse = false};
    tree_.ScanAsync(range, [this, slot](Result<client::Rows> rows) {
      slot->status = rows.status();
      slot->rows.clear();
      if (rows.ok()) {
        for (client::KeyValue& row : *rows) {
          slot->rows.push_back({std::move(row.key), std::move(row.value)});
        }
      }
      End(slot);
    });
  }
  /// A get and a compare-and-set, again if another write came between, until the deadline.
  void StartReadModifyWrite(Operation* slot) {
    tree_.GetAsync(slot->key, [this, slot](Result<client::Value> value) {
      TakeValue(slot, std::move(value));
      std::string replacement;
      if (!slot->found || !source_->Modify(*slot, slot->found_value, &replacement))
        return End(slot);
      tree_.CompareAndSetAsync(slot->key, slot->found_value, replacement,
                               [this, slot](Result<client::CompareAndSetResult> outcome) {
                                 slot->status = outcome.status();
                                 const bool again =
                                     outcome.ok() && *outcome == ConditionOutcome::kDifferent;
                                 if (again && session_->clock().NowNs() < slot->deadline_ns) {
                                   return StartReadModifyWrite(slot);
                                 }
                                 if (again) {
                                   slot->status = Status::DeadlineExceeded(
                                       "read-modify-write: another write came between each time");
                                 }
                                 slot->found = outcome.ok() && *outcome == ConditionOutcome::kDone;
                                 End(slot);
                               });
    });
  }

  static void TakeValue(Operation* slot, Result<client::Value>&& value) {
    slot->status = value.status();
    slot->found = value.ok() && value->has_value();
    if (slot->found) slot->found_value = std::move(**value);
  }
  void End(Operation* slot) {
    source_->Done(*slot);
    --running_;
    ended_.push_back(slot);
  }

  std::unique_ptr<client::Session> session_;
  SessionTree tree_;
  OperationSource* source_ = nullptr;
  std::vector<Operation> slots_;
  std::vector<Operation*> ended_;    // slots without an operation
  std::vector<Operation*> waiting_;  // slots whose operation is not due
  uint64_t running_ = 0;
};

class ClientTarget final : public Target {
 public:
  ClientTarget(std::string url, TargetOptions options, const Clock* clock)
      : url_(std::move(url)), options_(std::move(options)), clock_(clock) {}

  Result<std::unique_ptr<Session>> OpenSession() override {
    auto session = Connect(url_, options_, clock_);
    if (!session.ok()) return session.status();
    auto tree = OpenTree(**session, options_);
    if (!tree.ok()) return tree.status();
    return std::unique_ptr<Session>(
        std::make_unique<ClientSession>(std::move(*session), std::move(*tree)));
  }
  bool counts_fabric() const override { return false; }
  Result<uint64_t> PoolBytesUsed() override { return uint64_t{0}; }
  Status Close() override { return Status::Ok(); }

 private:
  const std::string url_;
  const TargetOptions options_;
  const Clock* const clock_;
};

}  // namespace

Result<std::unique_ptr<Target>> OpenClientTarget(const std::string& url,
                                                 const TargetOptions& options, const Clock* clock) {
  auto target = std::make_unique<ClientTarget>(url, options, clock);
  // One session now: the tree is made before the threads start, and bad news comes early.
  auto session = target->OpenSession();
  if (!session.ok()) return session.status();
  return std::unique_ptr<Target>(std::move(target));
}

}  // namespace farleaf::ycsb
