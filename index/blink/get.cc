// Get: on a warm cache one round trip with one READ, of a leaf or of a part of it (get_parts.cc).
#include <algorithm>
#include <cstring>

#include "dsm/base/mutation.h"
#include "index/blink/tree.h"

namespace farleaf::index {

namespace {
constexpr uint64_t kValueRetryNs = 500;

using dsm::SharedReads;

/// Of gets of one leaf which can share what they read: those that guess alike. Two guesses that are alike by
/// chance do no harm, for the leaf decides.
uint64_t PartOf(const GuessedValue& guess) {
  return guess.hint ? guess.hint->block.word() ^ uint64_t { guess.hint->bytes } << 40 : 0;
}
void CopyBytes(std::span<const std::byte> from, std::span<std::byte> into) {
  if (!from.empty()) std::memcpy(into.data(), from.data(), std::min(from.size(), into.size()));
}
}  // namespace

Task<Status> BlinkTree::ReadLeafAndGuess(OpContext& op, GlobalAddress leaf,
                                         std::span<std::byte> image, GuessedValue& guess) {
  if (guess.hint) guess.block.resize(guess.hint->bytes);
  SharedReads& shared = op.worker.shared_reads();
  SharedReads::Reader reader(leaf, PartOf(guess), image, guess.block);
  const bool shares = options_.read_sharing == ReadSharing::kOn;
  auto joined = SharedReads::Joined::kNobody;
  if (shares) joined = co_await shared.Join(reader);
  if (joined == SharedReads::Joined::kServed) {
    stats_.shared_reads.fetch_add(1, std::memory_order_relaxed);
    guess.read = guess.hint.has_value();
    co_return Status::Ok();
  }
  Batch batches[2] = {Batch(leaf.server()),
                      Batch(guess.hint ? guess.hint->block.server() : leaf.server())};
  batches[0].Read(leaf.offset(), image);
  const size_t with = batches[1].server() == leaf.server() ? 0 : 1;
  if (guess.hint) guess.AddRead(batches[with]);
  auto trip = op.worker.RoundTrip(batches, op.counts);
  if (shares && joined != SharedReads::Joined::kFailed && !trip.await_ready()) {
    shared.Lead(reader);
    if (!Mutated(Mutation::kJoinsReadInFlight)) shared.Posted(reader);
  }
  [[maybe_unused]] Status any = co_await trip;
  if (reader.leads()) {
    // Whoever is served a block that has not come finds out as of a wrong guess.
    const auto brought =
        batches[0].status().ok() ? SharedReads::Brought::kBytes : SharedReads::Brought::kNothing;
    const std::span<const std::byte> block = guess.block;
    shared.Complete(reader, brought,
                    [image, block](std::span<std::byte> into, std::span<std::byte> beside) {
                      CopyBytes(image, into);
                      CopyBytes(block, beside);
                    });
  }
  guess.read = guess.hint && batches[with].status().ok();
  co_return batches[0].status();
}

Task<Result<bool>> BlinkTree::Get(OpContext& op, std::string_view key, std::string* value) {
  if (!IsKey(key)) [[unlikely]]
    return {dsm::Done{}, CheckKey(key)};
  // Perhaps ahead of Worker::Run, which brackets what it runs itself: cached nodes must stay.
  op.worker.GoOnline();
  const auto at_once = parted() ? GetPartsInPlace(op, key, value) : GetInPlace(op, key, value);
  op.worker.GoOffline();
  if (at_once) return {dsm::Done{}, *at_once};
  return GetByReading(op, key, value);
}

Task<Result<bool>> BlinkTree::GetByReading(OpContext& op, std::string_view key,
                                           std::string* value) {
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
      NoteCacheHits(op, 1);
      Status status = co_await ReadLeafAndGuess(op, path.node, page.image(geometry, 0), guess);
      if (!status.ok()) co_return status;
      if (OpenPage(geometry, 0, page.image(geometry, 0)) == OpenOutcome::kValid) {
        const ConstNode leaf(geometry, page.image(geometry, 0));
        const Fit fit = FitOf(leaf, key, Side::kAt, 0);
        fresh = fit == Fit::kCovers ||
                (Mutated(Mutation::kAbsentFromStaleLeaf) && fit == Fit::kMoveRight);
        if (fit == Fit::kMoveRight && !path.parent.is_null() && !ParentIsDue(path.parent)) {
          LearnSplit(path.parent, path.node, leaf);  // the next READ is of the sibling
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
