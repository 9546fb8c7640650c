// Get: on a warm cache one round trip with one READ, of a leaf or of a part of it (get_parts.cc).
#include "dsm/base/mutation.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
constexpr uint64_t kValueRetryNs = 500;
}  // namespace

Task<Result<bool>> BlinkTree::Get(OpContext& op, std::string_view key, std::string* value) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckKey(key));
  if (const auto found = GetInPlace(op, key, value)) co_return *found;
  const Geometry& geometry = info_.geometry;
  PageBuffer page;
  uint64_t give_up_ns = 0;
  bool fresh = false;
  GuessedValue guess = GuessValue(key);
  if (parted()) {
    auto found = co_await GetFromParts(op, key, value, page, &fresh);
    if (!found.ok()) co_return found.status();
    if (*found) co_return **found;
  } else if (caching()) {
    const SearchCache::Path path = cache_.Find(key, Side::kAt, 0);
    if (path.complete && !path.node.is_null()) [[likely]] {
      Status status;
      if (guess.hint) {
        status = co_await ReadLeafAndGuess(op, path.node, page.image(geometry, 0), guess);
      } else {
        Batch batch(path.node.server());
        batch.Read(path.node.offset(), page.image(geometry, 0));
        status = co_await op.worker.RoundTrip(batch, op.counts);
      }
      if (!status.ok()) co_return status;
      if (OpenPage(geometry, 0, page.image(geometry, 0)) == OpenOutcome::kValid) {
        const ConstNode leaf(geometry, page.image(geometry, 0));
        const Fit fit = FitOf(leaf, key, Side::kAt, 0);
        fresh = fit == Fit::kCovers ||
                (Mutated(Mutation::kAbsentFromStaleLeaf) && fit == Fit::kMoveRight);
        if (fit == Fit::kMoveRight && !path.parent.is_null() && !ParentIsDue(path.parent)) {
          cache_.LearnSplit(path.parent, path.node, leaf);  // the next READ is of the sibling
        }
      }
    }
  }
  while (!op.expired()) {
    if (!fresh) {
      auto leaf = co_await ReadNode(op, key, Side::kAt, 0, page);
      if (!leaf.ok()) co_return leaf.status();
    }
    const ConstNode leaf(geometry, page.image(geometry, 0));
    const ConstNode::Position at = leaf.Search(key);
    if (!at.found) {
      ForgetGuess(guess);
      co_return false;
    }
    const StoredValue stored = leaf.Value(at.index);
    if (!stored.out_of_line) [[likely]] {
      ForgetGuess(guess);
      value->assign(stored.bytes);
      co_return true;
    }
    const OutOfLineValue where = DecodeOutOfLine(stored.bytes);
    if (TakeGuess(guess, where, value)) co_return true;
    auto outcome = co_await ReadValue(op, where, value);
    if (!outcome.ok()) co_return outcome.status();
    if (*outcome == ValueState::kRead) {
      if (guess.hash != 0) NoteValue(guess.hash, where);
      co_return true;
    }
    fresh = false;  // overwritten meanwhile: the leaf names another block by now
    const uint64_t now_ns = op.worker.clock().NowNs();
    if (give_up_ns == 0) give_up_ns = WaitDeadlineNs(op);
    if (now_ns >= give_up_ns) {
      co_return Status::Corruption("a leaf of tree '" + info_.name +
                                   "' keeps naming value blocks that hold other values");
    }
    co_await op.worker.Sleep(kValueRetryNs);
  }
  co_return Status::DeadlineExceeded("get in tree '" + info_.name + "'");
}

}  // namespace farleaf::index
