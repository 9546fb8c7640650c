// BasicTree: the operations on one named tree, through a Session or a Client (the Owner).
//
// Each operation comes blocking (`Get`), with a callback (`GetAsync(..., callback)`) and, through a
// Client, as a future (`GetAsync(...)`). Keys compare as unsigned bytes; a fixed8 tree takes keys
// and values of 8 bytes, an integer key is stored big-endian (Fixed8Key).
//
// How an operation ends besides its result:
//   InvalidArgument    the arguments do not fit the tree, or the protocol's limits
//   DeadlineExceeded   a read got no answer in time, or a write was refused or never sent
//   Unavailable        the server could not be reached, or says that a memory server is lost
//   Unknown            a write was sent and its answer never came: it may or may not have happened.
//                      It is never sent again by itself: not even a put is safe, since it would
//                      undo what another client wrote in between.
// Reads (Get, MultiGet, Scan) are sent again by themselves after a lost connection. A scan is not a
// snapshot; see index/range_index.h. With CallOptions::max_staleness_ms a read may see what was so up
// to that long ago.
//
// Thread rule: that of its owner, which it must not outlive.
#pragma once

#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "client/operation.h"
#include "client/options.h"

namespace farleaf::client {

/// The 8 bytes under which a fixed8 tree keeps an integer: they sort like integers.
inline std::string Fixed8Key(uint64_t key) {
  std::string bytes(8, '\0');
  StoreBig64(bytes.data(), key);
  return bytes;
}

/// A counter's value as it is kept: 8 bytes, two's complement, big-endian.
inline std::string CounterValue(int64_t number) {
  std::string bytes(protocol::kCounterBytes, '\0');
  StoreBig64(bytes.data(), static_cast<uint64_t>(number));
  return bytes;
}

template <typename Owner>
class BasicTree {
 public:
  BasicTree(Owner* owner, OpenedTree tree) : owner_(owner), tree_(std::move(tree)) {}

  const TreeInfo& info() const { return tree_.info; }

  /// The value, or nullopt if the key is not there.
  Result<Value> Get(std::string_view key, CallOptions call = {}) {
    return owner_->template Await<Value>(NewGet(key, call), call);
  }
  void GetAsync(std::string_view key, Callback<Value> done, CallOptions call = {}) {
    Start(NewGet(key, call), std::move(done), call);
  }
  std::future<Result<Value>> GetAsync(std::string_view key, CallOptions call = {}) {
    return StartFuture<Value>(NewGet(key, call), call);
  }

  /// One element a key, in the order of the keys. Each key is read atomically, not all together.
  Result<Values> MultiGet(std::span<const std::string> keys, CallOptions call = {}) {
    return owner_->template Await<Values>(NewMultiGet(keys, call), call);
  }
  void MultiGetAsync(std::span<const std::string> keys, Callback<Values> done,
                     CallOptions call = {}) {
    Start(NewMultiGet(keys, call), std::move(done), call);
  }
  std::future<Result<Values>> MultiGetAsync(std::span<const std::string> keys,
                                            CallOptions call = {}) {
    return StartFuture<Values>(NewMultiGet(keys, call), call);
  }

  /// All rows of the range; the server sends them in pieces of about 1 MiB.
  Result<Rows> Scan(const ScanRange& range, CallOptions call = {}) {
    return owner_->template Await<Rows>(NewScan(range, call), call);
  }
  void ScanAsync(const ScanRange& range, Callback<Rows> done, CallOptions call = {}) {
    Start(NewScan(range, call), std::move(done), call);
  }
  std::future<Result<Rows>> ScanAsync(const ScanRange& range, CallOptions call = {}) {
    return StartFuture<Rows>(NewScan(range, call), call);
  }

  /// Passes the range's rows to `on_piece` as they come, in pieces of about 1 MiB, so that none is kept.
  /// Returns how many there were.
  Result<uint64_t> ScanPieces(const ScanRange& range, PieceCallback on_piece,
                              CallOptions call = {}) {
    return owner_->template Await<uint64_t>(NewScan(range, call, std::move(on_piece)), call);
  }
  void ScanPiecesAsync(const ScanRange& range, PieceCallback on_piece, Callback<uint64_t> done,
                       CallOptions call = {}) {
    Start(NewScan(range, call, std::move(on_piece)), std::move(done), call);
  }

  /// Stores if the key is absent; returns whether it did.
  Result<bool> Insert(std::string_view key, std::string_view value, CallOptions call = {}) {
    return owner_->template Await<bool>(NewWrite(protocol::Opcode::kInsert, key, value, call),
                                        call);
  }
  void InsertAsync(std::string_view key, std::string_view value, Callback<bool> done,
                   CallOptions call = {}) {
    Start(NewWrite(protocol::Opcode::kInsert, key, value, call), std::move(done), call);
  }
  std::future<Result<bool>> InsertAsync(std::string_view key, std::string_view value,
                                        CallOptions call = {}) {
    return StartFuture<bool>(NewWrite(protocol::Opcode::kInsert, key, value, call), call);
  }

  /// Stores in any case; returns whether the key is new.
  Result<bool> Put(std::string_view key, std::string_view value, CallOptions call = {}) {
    return owner_->template Await<bool>(NewWrite(protocol::Opcode::kPut, key, value, call), call);
  }
  void PutAsync(std::string_view key, std::string_view value, Callback<bool> done,
                CallOptions call = {}) {
    Start(NewWrite(protocol::Opcode::kPut, key, value, call), std::move(done), call);
  }
  std::future<Result<bool>> PutAsync(std::string_view key, std::string_view value,
                                     CallOptions call = {}) {
    return StartFuture<bool>(NewWrite(protocol::Opcode::kPut, key, value, call), call);
  }

  /// Stores if the key is there; returns whether it did.
  Result<bool> Update(std::string_view key, std::string_view value, CallOptions call = {}) {
    return owner_->template Await<bool>(NewWrite(protocol::Opcode::kUpdate, key, value, call),
                                        call);
  }
  void UpdateAsync(std::string_view key, std::string_view value, Callback<bool> done,
                   CallOptions call = {}) {
    Start(NewWrite(protocol::Opcode::kUpdate, key, value, call), std::move(done), call);
  }
  std::future<Result<bool>> UpdateAsync(std::string_view key, std::string_view value,
                                        CallOptions call = {}) {
    return StartFuture<bool>(NewWrite(protocol::Opcode::kUpdate, key, value, call), call);
  }

  /// Returns whether the key was there.
  Result<bool> Delete(std::string_view key, CallOptions call = {}) {
    return owner_->template Await<bool>(NewWrite(protocol::Opcode::kDelete, key, {}, call), call);
  }
  void DeleteAsync(std::string_view key, Callback<bool> done, CallOptions call = {}) {
    Start(NewWrite(protocol::Opcode::kDelete, key, {}, call), std::move(done), call);
  }
  std::future<Result<bool>> DeleteAsync(std::string_view key, CallOptions call = {}) {
    return StartFuture<bool>(NewWrite(protocol::Opcode::kDelete, key, {}, call), call);
  }

  /// Deletes if the key's value equals `expected`.
  Result<ConditionOutcome> DeleteIf(std::string_view key, std::string_view expected,
                                    CallOptions call = {}) {
    return owner_->template Await<ConditionOutcome>(
        NewConditional(protocol::Opcode::kDeleteIf, key, expected, {}, call), call);
  }
  void DeleteIfAsync(std::string_view key, std::string_view expected,
                     Callback<ConditionOutcome> done, CallOptions call = {}) {
    Start(NewConditional(protocol::Opcode::kDeleteIf, key, expected, {}, call), std::move(done),
          call);
  }
  std::future<Result<ConditionOutcome>> DeleteIfAsync(std::string_view key,
                                                      std::string_view expected,
                                                      CallOptions call = {}) {
    return StartFuture<ConditionOutcome>(
        NewConditional(protocol::Opcode::kDeleteIf, key, expected, {}, call), call);
  }

  /// Stores `value` if the key's value equals `expected`, else tells the value that is there.
  Result<CompareAndSetResult> CompareAndSet(std::string_view key, std::string_view expected,
                                            std::string_view value, CallOptions call = {}) {
    return owner_->template Await<CompareAndSetResult>(
        NewConditional(protocol::Opcode::kCompareAndSet, key, expected, value, call), call);
  }
  void CompareAndSetAsync(std::string_view key, std::string_view expected, std::string_view value,
                          Callback<CompareAndSetResult> done, CallOptions call = {}) {
    Start(NewConditional(protocol::Opcode::kCompareAndSet, key, expected, value, call),
          std::move(done), call);
  }
  std::future<Result<CompareAndSetResult>> CompareAndSetAsync(std::string_view key,
                                                              std::string_view expected,
                                                              std::string_view value,
                                                              CallOptions call = {}) {
    return StartFuture<CompareAndSetResult>(
        NewConditional(protocol::Opcode::kCompareAndSet, key, expected, value, call), call);
  }

  /// Adds `delta` to the counter under `key` (CounterValue), and returns its new value. An absent one
  /// counts from `initial`, or fails with NotFound if there is none. InvalidArgument, and nothing
  /// happens: the value is no counter, or would leave 64 bits with sign.
  Result<int64_t> Add(std::string_view key, int64_t delta, std::optional<int64_t> initial = {},
                      CallOptions call = {}) {
    return owner_->template Await<int64_t>(NewAdd(key, delta, initial, call), call);
  }
  void AddAsync(std::string_view key, int64_t delta, std::optional<int64_t> initial,
                Callback<int64_t> done, CallOptions call = {}) {
    Start(NewAdd(key, delta, initial, call), std::move(done), call);
  }
  std::future<Result<int64_t>> AddAsync(std::string_view key, int64_t delta,
                                        std::optional<int64_t> initial = {},
                                        CallOptions call = {}) {
    return StartFuture<int64_t>(NewAdd(key, delta, initial, call), call);
  }

 private:
  Result<Operation> NewGet(std::string_view key, const CallOptions& call) {
    protocol::Request request;
    request.opcode = protocol::Opcode::kGet;
    request.key = key;
    request.max_staleness_ms = call.max_staleness_ms;
    Result<Operation> operation = Encode(request);
    if (operation.ok()) SetStaleness(call, &*operation);
    return operation;
  }
  Result<Operation> NewWrite(protocol::Opcode opcode, std::string_view key, std::string_view value,
                             const CallOptions& call) {
    protocol::Request request;
    request.opcode = opcode;
    request.durability = call.durability;
    request.key = key;
    request.value = value;
    return Encode(request);
  }
  Result<Operation> NewConditional(protocol::Opcode opcode, std::string_view key,
                                   std::string_view expected, std::string_view value,
                                   const CallOptions& call) {
    protocol::Request request;
    request.opcode = opcode;
    request.durability = call.durability;
    request.key = key;
    request.expected = expected;
    request.value = value;
    return Encode(request);
  }
  Result<Operation> NewAdd(std::string_view key, int64_t delta, std::optional<int64_t> initial,
                           const CallOptions& call) {
    protocol::Request request;
    request.opcode = protocol::Opcode::kAdd;
    request.durability = call.durability;
    request.key = key;
    request.delta = delta;
    request.initial = initial;
    return Encode(request);
  }
  Result<Operation> NewMultiGet(std::span<const std::string> keys, const CallOptions& call) {
    protocol::Request longest;
    longest.opcode = protocol::Opcode::kMultiGet;
    for (const std::string& key : keys) {
      if (key.size() > longest.key.size()) longest.key = key;
    }
    FARLEAF_RETURN_IF_ERROR(CheckLimits(longest));
    Operation operation = NewOperation(longest.opcode);
    SetStaleness(call, &operation);
    operation.pieces = std::make_unique<Operation::Pieces>();
    operation.pieces->keys.assign(keys.begin(), keys.end());
    internal::EncodeNextPiece(&operation);
    return operation;
  }
  Result<Operation> NewScan(ScanRange range, const CallOptions& call, PieceCallback on_piece = {}) {
    if (!internal::ResolvePrefix(tree_.info, &range)) range.limit = 0;
    protocol::Request bounds;
    bounds.opcode = protocol::Opcode::kScan;
    bounds.key = range.start;
    bounds.end = range.end;
    FARLEAF_RETURN_IF_ERROR(CheckLimits(bounds));
    Operation operation = NewOperation(bounds.opcode);
    SetStaleness(call, &operation);
    operation.pieces = std::make_unique<Operation::Pieces>();
    operation.pieces->range = std::move(range);
    operation.pieces->on_piece = std::move(on_piece);
    internal::EncodeNextPiece(&operation);
    return operation;
  }
  static void SetStaleness(const CallOptions& call, Operation* operation) {
    operation->max_staleness_ms = call.max_staleness_ms;
    operation->staleness_ms = call.staleness_ms;
    if (call.staleness_ms != nullptr) *call.staleness_ms = 0;
  }
  Operation NewOperation(protocol::Opcode opcode) {
    Operation operation;
    operation.opcode = opcode;
    operation.tree = tree_.handle;
    operation.frame = owner_->TakeFrameBuffer();
    return operation;
  }
  Result<Operation> Encode(const protocol::Request& request) {
    FARLEAF_RETURN_IF_ERROR(CheckLimits(request));
    Operation operation = NewOperation(request.opcode);
    AppendRequest(request, &operation.frame);
    return operation;
  }

  template <typename T>
  void Start(Result<Operation> operation, Callback<T> done, CallOptions call) {
    if (!operation.ok()) return done(operation.status());
    operation->callback = std::move(done);
    owner_->Submit(std::move(*operation), call);
  }
  template <typename T>
  std::future<Result<T>> StartFuture(Result<Operation> operation, CallOptions call) {
    static_assert(Owner::kHasThread, "nobody would poll a Session while the future is awaited");
    auto promise = std::make_shared<std::promise<Result<T>>>();
    auto future = promise->get_future();
    Start<T>(
        std::move(operation),
        [promise](Result<T> result) { promise->set_value(std::move(result)); }, call);
    return future;
  }

  Owner* owner_;
  OpenedTree tree_;
};

}  // namespace farleaf::client
