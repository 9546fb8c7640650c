// Leaves of byte strings that lie in memory which this process can load from (shared memory): gets look at a few of
// their lines, by loads (leaf_peek.h), and a value takes the place of one of the same length under the leaf's lock,
// without the leaf being read or its checksum made anew (dsm/base/crc32c_change.h). Whatever else there is to be done goes the way
// that all fabrics have: these functions then have changed nothing.
//
// A value's replacement is the write-back that it would be otherwise, to the byte: redo record, what changed, unlock, in
// one batch. What it is made from was looked at before the lock was taken, and is the leaf's content under the lock if
// the version still is the one seen.
#include <algorithm>
#include <array>
#include <boost/container/static_vector.hpp>
#include <cstring>

#include "dsm/base/crc32c_change.h"
#include "index/blink/leaf_peek.h"
#include "index/blink/tree.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

namespace {
/// Keys that are looked for together, so that the cache misses of one hide behind those of others.
constexpr size_t kPeeksTogether = 16;
/// What of a leaf is fetched ahead: header, fences and the slots of leaves that are not very full of small entries.
constexpr uint32_t kSlotsPrefetchBytes = 320;

/// The redo slots that changes which follow one another on one thread, without waiting, use in turn: one a memory server,
/// instead of one for each change. Given back at the end.
///
/// Nothing else takes or waits for a slot meanwhile, so that the order of classes (dsm/remote_lock.h) is not touched.
class SlotsInTurn {
 public:
  explicit SlotsInTurn(dsm::Pool* pool) : pool_(pool) {}
  SlotsInTurn(const SlotsInTurn&) = delete;
  ~SlotsInTurn() {
    for (const Used& used : used_) pool_->redo_slots(used.server).Give(used.word);
  }
  /// A fresh word, as RedoSlots::Take.
  std::optional<uint64_t> Take(dsm::ServerId server, LockClass lock_class) {
    for (Used& used : used_) {
      if (used.server != server) continue;
      const uint64_t word = used.word;
      used = used_.back();
      used_.pop_back();
      if (const auto next = dsm::RedoSlots::Again(word)) return next;
      break;
    }
    return pool_->redo_slots(server).Take(lock_class);
  }
  /// The lock that carried `word` is released, or was not obtained.
  void Give(dsm::ServerId server, uint64_t word) {
    if (used_.size() < used_.capacity()) {
      used_.push_back({server, word});
    } else {
      pool_->redo_slots(server).Give(word);
    }
  }

 private:
  struct Used {
    dsm::ServerId server;
    uint64_t word;  ///< the last one
  };
  dsm::Pool* const pool_;
  boost::container::static_vector<Used, 4> used_;
};
}  // namespace

/// What an operation on the tree does with leaves where they lie.
struct BlinkTree::AtPlace {
  BlinkTree& tree;
  OpContext& op;

  /// Whether this fabric's memory can be loaded from at all: asked ahead of a descent for nothing.
  bool can_peek() const {
    return tree.options_.in_place == InPlace::kOn && tree.caching() &&
           tree.info_.geometry.layout == Layout::kBytes &&
           op.worker.transport().Mapped(tree.cache_.root().address, 8) != nullptr;
  }
  bool takes(std::string_view key) const { return can_peek() && tree.IsKey(key); }
  /// A key's leaf, and what a look at it has told.
  struct Look {
    GlobalAddress leaf;
    LeafPeek peek;
    bool begun = false;                  ///< the key has been looked for, by the slots at least
    std::optional<PeekOutcome> outcome;  ///< nullopt: not, or not to the end
  };
  /// Of the leaf that the cached nodes name for the key, or that was expected, if it can be looked at where it is. Begins
  /// to fetch it.
  bool BeginLook(std::string_view key, Look* look) const;
  /// The same by the cached nodes alone. REQUIRES: takes(key).
  bool BeginLookByCache(std::string_view key, Look* look) const;
  bool BeginLookAt(GlobalAddress leaf, Look* look) const;
  bool BeginLookAt(const SearchCache::Path& path, Look* look) const {
    return path.complete && !path.node.is_null() && BeginLookAt(path.node, look);
  }
  PeekOutcome Find(std::string_view key, LeafPeek& peek, PageBuffer& image) const {
    const PeekOutcome outcome = peek.Find(key, image);
    NoteOutcome(key, outcome);
    return outcome;
  }
  void NoteOutcome(std::string_view key, PeekOutcome outcome) const {
    // Another leaf's key by now, perhaps: the cached nodes will know.
    if (outcome == PeekOutcome::kNotHere) tree.expected_.Forget(op.worker.number(), key);
  }
  /// One READ, of what was looked at. Of a look that has told nothing the leaf's own READ counts, which it is the
  /// beginning of.
  void Count(const LeafPeek& peek) const {
    ++op.counts.reads;
    op.counts.bytes_read += peek.loaded_bytes();
  }
  /// VisitAtOnce of a few. One by itself, most often, overlaps with nothing.
  size_t Visit(std::span<const std::string_view> keys, size_t first_number,
               ValueVisitor& visitor) const {
    return keys.size() == 1 ? VisitSome<1>(keys, first_number, visitor)
                            : VisitSome<kPeeksTogether>(keys, first_number, visitor);
  }
  /// What has become of the key of a look, be it begun or not.
  PeekOutcome EndFind(std::string_view key, Look& look, PageBuffer& image) const {
    if (!look.begun) return Find(key, look.peek, image);
    return look.outcome ? *look.outcome : look.peek.EndFind(image);
  }
  template <size_t kTogether>
  size_t VisitSome(std::span<const std::string_view> keys, size_t first_number,
                   ValueVisitor& visitor) const;
  /// BeginLook of keys, from the first on. Returns of how many.
  size_t BeginLooks(std::span<const std::string_view> keys, std::span<Look> looks) const;
  size_t BeginLooks(std::span<const std::string_view> keys, std::array<Look, 1>& look) const {
    return BeginLook(keys[0], &look[0]) ? 1 : 0;
  }
  /// Begins to look for keys, and to fetch what else is to be looked at.
  void BeginFinds(std::span<const std::string_view> keys, std::span<Look> looks,
                  PageBuffer& image) const;
  /// Modify, if its value takes the place of one of the same length, or none is written; nullopt: it is not done.
  /// `replacement`: room for the value.
  template <typename Decision>
  std::optional<Result<ModifyResult>> Change(std::string_view key, Look& look, CurrentValue use,
                                             std::string& replacement, const Decision& decide,
                                             SlotsInTurn& slots) const;
  /// ModifyAtOnce of a few.
  template <size_t kTogether>
  size_t ChangeSome(std::span<const std::string_view> keys, size_t first_number, CurrentValue use,
                    KeyChanges& changes) const;
  /// Takes the lock, if nobody has it, and reads nothing. The slot is kept when the lock is let go: it goes back to `slots`.
  bool Lock(GlobalAddress address, LockedPage& leaf, SlotsInTurn& slots) const;
  /// WRITEs of `value` in the place of what was looked at into `leaf.before`, which has its length.
  void AddReplacedValue(LockedPage& leaf, const LeafPeek& peek, std::string_view value,
                        Batch& batch) const;
  /// Reads the value that a look at its leaf has found to be there. It is one round trip with the look where it was guessed,
  /// and another one where not. False: it is not there any more, and nothing is known.
  bool ReadBlock(std::string_view key, const OutOfLineValue& where, const GuessedValue& guess,
                 std::string* value) const;
  /// Posts on a fabric that completes batches at once.
  Status Post(Batch& batch) const {
    auto trip = op.worker.RoundTrip(batch, op.counts);
    FARLEAF_CHECK(trip.await_ready(), "mapped memory whose transport does not complete at once");
    return trip.await_resume();
  }
};

bool BlinkTree::AtPlace::BeginLookAt(GlobalAddress leaf, Look* look) const {
  const Geometry& geometry = tree.info_.geometry;
  const std::byte* const page = op.worker.transport().Mapped(leaf, geometry.page_bytes(0));
  if (page == nullptr) return false;
  look->leaf = leaf;
  look->peek = LeafPeek(geometry, tree.info_.id, MappedPage(page));
  return true;
}

bool BlinkTree::AtPlace::BeginLook(std::string_view key, Look* look) const {
  if (!takes(key)) return false;
  const auto expected = tree.expected_.Find(op.worker.number(), key);
  return expected ? BeginLookAt(*expected, look) : BeginLookByCache(key, look);
}

bool BlinkTree::AtPlace::BeginLookByCache(std::string_view key, Look* look) const {
  if (!BeginLookAt(tree.cache_.Find(key, Side::kAt, 0), look)) return false;
  tree.NoteCacheHits(op, 1);
  look->peek.PrefetchFirst(kSlotsPrefetchBytes);
  look->peek.PrefetchLock();
  return true;
}

std::optional<bool> BlinkTree::GetInPlace(OpContext& op, std::string_view key, std::string* value) {
  const AtPlace at{*this, op};
  AtPlace::Look look;
  if (!at.BeginLook(key, &look)) return std::nullopt;
  LeafPeek& peek = look.peek;
  PageBuffer image;
  const GuessedValue guess = value_hints_.bytes() > 0 ? GuessValue(key) : GuessedValue{};
  if (guess.hint) op.worker.transport().Prefetch(guess.hint->block, guess.hint->bytes);
  const PeekOutcome outcome = at.Find(key, peek, image);
  std::string_view found;
  if (outcome != PeekOutcome::kNotHere && outcome != PeekOutcome::kAbsent)
    found = peek.Value(image);
  if (outcome == PeekOutcome::kNotHere || !peek.Holds()) return std::nullopt;
  if (outcome == PeekOutcome::kOutOfLine) {
    if (!at.ReadBlock(key, DecodeOutOfLine(found), guess, value)) return std::nullopt;
    at.Count(peek);
    return true;
  }
  ForgetGuess(guess);
  at.Count(peek);
  ++op.counts.round_trips;
  if (outcome == PeekOutcome::kFound) value->assign(found);
  return outcome == PeekOutcome::kFound;
}

bool BlinkTree::AtPlace::ReadBlock(std::string_view key, const OutOfLineValue& where,
                                   const GuessedValue& guess, std::string* value) const {
  if (where.length > kValueBytesMax) return false;  // the usual way tells what is wrong
  std::vector<std::byte> block(BlockReadBytes(where.length));
  Batch batch(where.block.server());
  batch.Read(where.block.offset(), block);
  if (!Post(batch).ok() || OpenBlock(block, where, value) != ValueState::kRead) return false;
  const bool guessed = guess.hint && guess.hint->block == where.block;
  if (guess.hint && !guessed) tree.stats_.stale_value_hints.fetch_add(1, std::memory_order_relaxed);
  if (!guessed) ++op.counts.round_trips;
  if (!guessed && tree.value_hints_.enabled()) {
    tree.NoteValue(guess.hash != 0 ? guess.hash : ValueHints::HashOf(tree.info_.id, key), where);
  }
  return true;
}

size_t BlinkTree::AtPlace::BeginLooks(std::span<const std::string_view> keys,
                                      std::span<Look> looks) const {
  if (!can_peek()) return 0;
  const size_t wanted = std::min({keys.size(), looks.size(), kPeeksTogether});
  std::array<SearchCache::Path, kPeeksTogether> paths;
  size_t begun = 0, count = 0;
  for (; begun < wanted && tree.IsKey(keys[begun]); ++begun) {
    paths[begun] = tree.cache_.BeginFind(keys[begun]);
  }
  for (; count < begun; ++count) {
    const SearchCache::Path path = tree.cache_.EndFind(keys[count], paths[count]);
    if (!BeginLookAt(path, &looks[count])) break;
  }
  tree.NoteCacheHits(op, count);
  // A line of each first: what a page's address takes to be translated is waited for together.
  for (const Look& look : looks.first(count)) look.peek.PrefetchLock();
  for (const Look& look : looks.first(count)) look.peek.PrefetchFirst(kSlotsPrefetchBytes);
  return count;
}

void BlinkTree::AtPlace::BeginFinds(std::span<const std::string_view> keys, std::span<Look> looks,
                                    PageBuffer& image) const {
  for (size_t i = 0; i < looks.size(); ++i) {
    Look& look = looks[i];
    look.begun = true;
    look.outcome = look.peek.BeginFind(keys[i], image);
    if (!look.outcome || *look.outcome == PeekOutcome::kFound) {
      look.peek.PrefetchEntry();
    } else {
      NoteOutcome(keys[i], *look.outcome);
    }
  }
}

template <size_t kTogether>
size_t BlinkTree::AtPlace::VisitSome(std::span<const std::string_view> keys, size_t first_number,
                                     ValueVisitor& visitor) const {
  std::array<Look, kTogether> looks;
  PageBuffer image;
  const size_t count = BeginLooks(keys, looks);
  if constexpr (kTogether > 1) BeginFinds(keys, std::span(looks).first(count), image);
  size_t visited = 0;
  for (; visited < count; ++visited) {
    LeafPeek& peek = looks[visited].peek;
    const PeekOutcome outcome = EndFind(keys[visited], looks[visited], image);
    std::optional<std::string_view> value;
    if (outcome == PeekOutcome::kFound) value = peek.Value(image);
    if (outcome == PeekOutcome::kNotHere || outcome == PeekOutcome::kOutOfLine || !peek.Holds()) {
      break;
    }
    Count(peek);
    visitor.Visit(first_number + visited, value);
  }
  op.counts.round_trips += visited > 0;
  return visited;
}

size_t BlinkTree::VisitAtOnce(OpContext& op, std::span<const std::string_view> keys,
                              ValueVisitor& visitor) {
  size_t done = 0;
  while (done < keys.size()) {
    const size_t visited = AtPlace{*this, op}.Visit(keys.subspan(done), done, visitor);
    if (visited == 0) break;
    done += visited;
  }
  return done;
}

void BlinkTree::Expect(OpContext& op, std::string_view key) {
  // By the cached nodes alone: a place that was expected before would be so for ever.
  const AtPlace at{*this, op};
  AtPlace::Look look;
  if (at.takes(key) && at.BeginLookByCache(key, &look)) {
    expected_.Note(op.worker.number(), key, look.leaf);
  }
}

Task<Status> BlinkTree::VisitValues(OpContext& op, std::span<const std::string_view> keys,
                                    ValueVisitor& visitor) {
  size_t done = 0;
  std::string value;
  const AtPlace at{*this, op};
  while (done < keys.size() && at.can_peek()) {
    const size_t visited = at.Visit(keys.subspan(done), done, visitor);
    done += visited;
    if (visited > 0) continue;
    const auto found = co_await Get(op, keys[done], &value);
    if (!found.ok()) co_return found.status();
    visitor.Visit(done, *found ? std::optional<std::string_view>(value) : std::nullopt);
    ++done;
  }
  if (done == keys.size()) co_return Status::Ok();
  std::vector<std::optional<std::string>> values;
  const Status got = co_await MultiGet(op, keys.subspan(done), &values);
  if (!got.ok()) co_return got;
  for (size_t i = 0; i < values.size(); ++i) {
    visitor.Visit(done + i, values[i] ? std::optional<std::string_view>(*values[i]) : std::nullopt);
  }
  co_return got;
}

bool BlinkTree::AtPlace::Lock(GlobalAddress address, LockedPage& leaf, SlotsInTurn& slots) const {
  const LockClass lock_class = LeftLockClass(0);
  if (tree.pool_->redo_slots(address.server()).area() == 0 ||
      !tree.pool_->locks().TryAcquire(address, lock_class)) {
    return false;
  }
  leaf.address = address;
  leaf.level_class = lock_class;
  leaf.keeps_slot = true;
  leaf.BeginTurn(tree.info_.geometry, &tree.pool_->locks());
  leaf.ForbidHandOver();  // the page is not in hand
  if (const auto word = slots.Take(address.server(), lock_class)) {
    uint64_t old = 0;
    Batch batch(address.server());
    batch.CompareAndSwap(tree.LockWordOffset(address, 0), dsm::kUnlockedWord, *word, &old);
    if (Post(batch).ok() && old == dsm::kUnlockedWord) {
      leaf.lock_word = *word;
      return true;
    }
    slots.Give(address.server(), *word);  // here a batch that fails has not run
  }
  tree.pool_->locks().Release(address);
  leaf.turn = {};
  return false;
}

void BlinkTree::AtPlace::AddReplacedValue(LockedPage& leaf, const LeafPeek& peek,
                                          std::string_view value, Batch& batch) const {
  const Geometry& geometry = tree.info_.geometry;
  const size_t image_bytes = geometry.image_bytes(0);
  const auto before = leaf.before.image(geometry, 0), after = leaf.buffer.image(geometry, 0);
  const size_t value_begin = peek.value_offset() / 8 * 8,
               value_end = RoundUp(peek.value_offset() + value.size(), 8);
  const std::array<dsm::RedoExtent, 3> changed = {
      {{0, 16},
       {static_cast<uint32_t>(value_begin), static_cast<uint32_t>(value_end - value_begin)},
       {static_cast<uint32_t>(image_bytes - internal::kTailBytes), internal::kTailBytes}}};
  const size_t tail = image_bytes - internal::kTailBytes;
  std::memcpy(&after[0], &before[0], 16);
  std::memcpy(&after[tail], &before[tail], internal::kTailBytes);
  // What of the value's words is not the value stands in the first and the last of them.
  std::memcpy(&after[value_begin], &before[value_begin], 8);
  std::memcpy(&after[value_end - 8], &before[value_end - 8], 8);
  std::memcpy(&after[peek.value_offset()], value.data(), value.size());
  Node(geometry, after).SetVersion(peek.version() + 1);
  auto checksum = LoadLittle<uint32_t>(before.data());
  for (dsm::RedoExtent extent : changed) {
    if (extent.offset == 0) extent = {8, 8};  // the checksum's own word has not changed otherwise
    checksum ^= Crc32cChange(before.subspan(extent.offset, extent.length),
                             after.subspan(extent.offset, extent.length),
                             (image_bytes - extent.offset - extent.length) / 8);
  }
  StoreLittle(after.data(), checksum);
  dsm::RedoHead head = tree.RedoHeadOf(leaf);
  head.write_back = peek.version() + 1;
  tree.AddRedoRecord(leaf, dsm::EncodeRedo(head, before, after, changed, leaf.redo), batch);
  for (const dsm::RedoExtent& extent : changed) {
    batch.Write(leaf.address.offset() + extent.offset, after.subspan(extent.offset, extent.length));
  }
}

template <typename Decision>
std::optional<Result<ModifyResult>> BlinkTree::AtPlace::Change(std::string_view key, Look& look,
                                                               CurrentValue use,
                                                               std::string& replacement,
                                                               const Decision& decide,
                                                               SlotsInTurn& slots) const {
  LockedPage leaf;
  LeafPeek& peek = look.peek;
  const bool begun = look.begun;
  if (begun) look.outcome = EndFind(key, look, leaf.before);
  if (begun && peek.Holds()) {
    peek.LoadEnds(leaf.before);
  } else {  // not looked at yet, or it has been changed since, by the change in front of this one, perhaps
    look.outcome = Find(key, peek, leaf.before);
  }
  if (look.outcome != PeekOutcome::kFound) return std::nullopt;
  const std::string_view current = peek.Value(leaf.before);
  if (!peek.Holds()) return std::nullopt;
  replacement.clear();
  const bool sees_value = use == CurrentValue::kRead;
  const ModifyResult result{true, decide(sees_value ? current : std::string_view(), &replacement)};
  if (result.action == ModifyAction::kKeep) {
    Count(peek);
    ++op.counts.round_trips;
    return result;
  }
  // What is empty has no place of its own.
  if (result.action != ModifyAction::kWrite || replacement.size() != current.size() ||
      current.empty() || tree.options_.small_write_backs == SmallWriteBacks::kOff ||
      !Lock(look.leaf, leaf, slots)) {
    return std::nullopt;
  }
  Count(peek);
  Batch batch(look.leaf.server());
  const bool same = peek.SameVersion();
  if (same) AddReplacedValue(leaf, peek, replacement, batch);
  tree.AddUnlock(leaf, batch);
  const Status posted = Post(batch);
  const uint64_t word = leaf.lock_word;
  if (tree.LetGo(leaf, posted)) [[likely]] {
    slots.Give(look.leaf.server(), word);
  } else {
    leaf.keeps_slot = false;
    tree.AbandonPage(op, leaf, posted);
    if (same) {
      return Status::Unknown("write-back of page " + look.leaf.ToString() + ": " +
                             posted.ToString());
    }
  }
  if (!same) return std::nullopt;
  return result;
}

template <size_t kTogether>
size_t BlinkTree::AtPlace::ChangeSome(std::span<const std::string_view> keys, size_t first_number,
                                      CurrentValue use, KeyChanges& changes) const {
  std::array<Look, kTogether> looks;
  const size_t count = BeginLooks(keys, looks);
  if constexpr (kTogether > 1) {
    PageBuffer image;
    BeginFinds(keys, std::span(looks).first(count), image);
  }
  SlotsInTurn slots(tree.pool_);
  for (size_t i = 0; i < count; ++i) {
    const auto result = Change(
        keys[i], looks[i], use, changes.room(),
        [&](std::optional<std::string_view> current, std::string* replacement) {
          return changes.Decide(first_number + i, current, replacement);
        },
        slots);
    if (!result) return i;
    changes.Done(first_number + i, *result);
    if (!result->ok()) return i + 1;
  }
  return count;
}

size_t BlinkTree::ModifyAtOnce(OpContext& op, std::span<const std::string_view> keys,
                               CurrentValue use, KeyChanges& changes) {
  size_t done = 0;
  while (done < keys.size() && pool_->self().id != 0 && !HasUnfinished()) {
    const auto some = keys.subspan(done, std::min(keys.size() - done, kPeeksTogether));
    const AtPlace at{*this, op};
    const size_t changed = some.size() == 1
                               ? at.ChangeSome<1>(some, done, use, changes)
                               : at.ChangeSome<kPeeksTogether>(some, done, use, changes);
    done += changed;
    if (changed < some.size()) break;
  }
  return done;
}

std::optional<Result<ModifyResult>> BlinkTree::ModifyInPlace(OpContext& op, std::string_view key,
                                                             const ModifyFunction& modify,
                                                             CurrentValue use) {
  const AtPlace at{*this, op};
  AtPlace::Look look;
  if (pool_->self().id == 0 || HasUnfinished() || !at.BeginLook(key, &look)) {
    return std::nullopt;
  }
  std::string room;
  SlotsInTurn slots(pool_);
  return at.Change(key, look, use, room, modify, slots);
}

}  // namespace farleaf::index
