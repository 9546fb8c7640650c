// Out-of-line values: blocks in the pool (value_block.h).
//
// A reader accepts a block only if id, length and checksum agree with the leaf's entry; otherwise the
// value was overwritten or deleted meanwhile, and the leaf is read again. A new value always takes a
// new block, written in the same batch as the leaf and ahead of it.
#include <algorithm>

#include "dsm/base/bytes.h"
#include "dsm/base/mutation.h"
#include "index/blink/tree.h"
#include "index/blink/value_block.h"

namespace farleaf::index {

namespace {

constexpr int kBlockReadsMax = 8;
/// Of one round trip.
constexpr size_t kFetchesMax = 1024;
constexpr uint64_t kFetchBytesMax = uint64_t{16} << 20;

}  // namespace

ValueState OpenBlock(std::span<const std::byte> block, const OutOfLineValue& where,
                     std::string* value) {
  const bool checks_id = !Mutated(Mutation::kValueIdUnchecked);
  if ((checks_id && BlockWord(block) != where.unique_id) || BlockLength(block) != where.length) {
    return ValueState::kReused;
  }
  const size_t used = kBlockHeaderBytes + where.length;
  if (BlockCrc(block.first(used)) != BlockStoredCrc(block)) return ValueState::kTorn;
  value->assign(AsChars(block.subspan(kBlockHeaderBytes, where.length)));
  return ValueState::kRead;
}

GuessedValue BlinkTree::GuessValue(std::string_view key) const {
  GuessedValue guess;
  if (!value_hints_.enabled()) return guess;
  guess.hash = ValueHints::HashOf(info_.id, key);
  guess.hint = value_hints_.Find(guess.hash);
  return guess;
}

bool BlinkTree::TakeGuess(GuessedValue& guess, const OutOfLineValue& where, std::string* value) {
  if (!guess.read) return false;
  guess.read = false;
  if (Mutated(Mutation::kValueHintUnchecked)) {
    const OutOfLineValue said{guess.hint->block, BlockWord(guess.block), BlockLength(guess.block)};
    return kBlockHeaderBytes + said.length <= guess.block.size() &&
           OpenBlock(guess.block, said, value) == ValueState::kRead;
  }
  if (guess.hint->block == where.block && guess.block.size() == BlockReadBytes(where.length) &&
      OpenBlock(guess.block, where, value) == ValueState::kRead) {
    return true;
  }
  stats_.stale_value_hints.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void BlinkTree::NoteValue(uint64_t hash, const OutOfLineValue& where) {
  const uint64_t bytes = BlockReadBytes(where.length);
  if (bytes > BlockNames::kBlockBytesMax) {
    value_hints_.Forget(hash);
  } else {
    value_hints_.Note(hash, {where.block, static_cast<uint32_t>(bytes)});
  }
}

void BlinkTree::ForgetGuess(const GuessedValue& guess) {
  if (!guess.hint) return;
  if (guess.read) stats_.stale_value_hints.fetch_add(1, std::memory_order_relaxed);
  value_hints_.Forget(guess.hash);
}

Task<Status> BlinkTree::ReadValues(OpContext& op, std::span<ValueFetch> fetches) {
  while (!fetches.empty()) {  // in round trips of bounded size
    size_t count = 0;
    for (uint64_t bytes = 0; count < std::min(fetches.size(), kFetchesMax); ++count) {
      bytes += fetches[count].where.length;
      if (count > 0 && bytes > kFetchBytesMax) break;
    }
    Status status = co_await ReadSomeValues(op, fetches.first(count));
    if (!status.ok()) co_return status;
    fetches = fetches.subspan(count);
  }
  co_return Status::Ok();
}

Task<Status> BlinkTree::ReadSomeValues(OpContext& op, std::span<ValueFetch> fetches) {
  std::vector<std::vector<std::byte>> blocks(fetches.size());
  for (int attempt = 0; attempt < kBlockReadsMax; ++attempt) {
    std::vector<Batch> batches;
    for (size_t i = 0; i < fetches.size(); ++i) {
      ValueFetch& fetch = fetches[i];
      if (fetch.state == ValueState::kRead) continue;
      if (fetch.where.length > kValueBytesMax) {
        co_return Status::Corruption("value block " + fetch.where.block.ToString() + " claims " +
                                     std::to_string(fetch.where.length) + " bytes");
      }
      blocks[i].resize(BlockReadBytes(fetch.where.length));
      dsm::BatchFor(batches, fetch.where.block.server())
          .Read(fetch.where.block.offset(), blocks[i]);
    }
    Status status = co_await op.worker.RoundTrip(batches, op.counts);
    if (!status.ok()) co_return status;
    bool torn = false;
    uint64_t reused = 0;
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (fetches[i].state == ValueState::kRead) continue;
      fetches[i].state = OpenBlock(blocks[i], fetches[i].where, fetches[i].value);
      torn |= fetches[i].state == ValueState::kTorn;
      reused += fetches[i].state == ValueState::kReused;
    }
    stats_.reused_values.fetch_add(reused, std::memory_order_relaxed);
    if (!torn) break;
    stats_.torn_values.fetch_add(1, std::memory_order_relaxed);
    stats_.torn_reads.fetch_add(1, std::memory_order_relaxed);
  }
  co_return Status::Ok();
}

Task<Result<ValueState>> BlinkTree::ReadValue(OpContext& op, OutOfLineValue where,
                                              std::string* value) {
  ValueFetch fetch{where, value};
  Status status = co_await ReadValues(op, {&fetch, 1});
  if (!status.ok()) co_return status;
  co_return fetch.state;
}

Task<Status> BlinkTree::PrepareValue(OpContext& op, std::string_view value, dsm::ServerId server,
                                     NewValue& fresh) {
  const size_t used = kBlockHeaderBytes + value.size();
  OutOfLineValue where;
  where.length = static_cast<uint32_t>(value.size());
  const uint64_t chunk_bytes = pool_->layouts()[0].chunk_bytes;
  if (auto block_bytes = dsm::ValueBlockBytes(used, chunk_bytes)) {
    auto grant =
        co_await pool_->allocator().Allocate(op, {dsm::ChunkKind::kValue, *block_bytes, 0}, server);
    if (!grant.ok()) co_return grant.status();
    where.block = grant->address;
  } else {
    auto extent = co_await pool_->allocator().AllocateExtent(op, RoundUp(used, 8), server);
    if (!extent.ok()) co_return extent.status();
    where.block = *extent;
  }
  where.unique_id = pool_->NextUniqueId();
  fresh.address = where.block;
  fresh.bytes.clear();
  fresh.bytes.reserve(RoundUp(used, 8));
  fresh.bytes.resize(kBlockHeaderBytes);
  const auto payload = AsBytes(value);
  fresh.bytes.insert(fresh.bytes.end(), payload.begin(), payload.end());
  fresh.bytes.resize(RoundUp(used, 8));
  StoreLittle<uint64_t>(fresh.bytes.data(), where.unique_id);
  StoreLittle<uint32_t>(fresh.bytes.data() + 12, where.length);
  StoreLittle<uint32_t>(fresh.bytes.data() + 8, BlockCrc(std::span(fresh.bytes).first(used)));
  EncodeOutOfLine(where, fresh.encoded);
  co_return Status::Ok();
}

Task<Status> BlinkTree::PlaceValue(OpContext& op, std::string_view key, const NewValue& fresh,
                                   Batch& leaf_batch) {
  if (fresh.address.server() == leaf_batch.server()) {
    leaf_batch.Write(fresh.address.offset(), fresh.bytes);  // ahead of the leaf, same round trip
    co_return Status::Ok();
  }
  Batch batch(fresh.address.server());
  batch.Write(fresh.address.offset(), fresh.bytes);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) co_await SettleNewValue(op, key, fresh, status);
  co_return status;
}

std::optional<dsm::PageClass> BlinkTree::BlockClassOf(const OutOfLineValue& where) const {
  const auto bytes =
      dsm::ValueBlockBytes(kBlockHeaderBytes + where.length, pool_->layouts()[0].chunk_bytes);
  if (!bytes) return std::nullopt;
  return dsm::PageClass{dsm::ChunkKind::kValue, *bytes, 0};
}

Task<Status> BlinkTree::DiscardValue(OpContext& op, OutOfLineValue where) {
  const uint64_t free_word = FreePageWord();
  Batch batch(where.block.server());
  batch.WriteWord(where.block.offset(), &free_word);
  Status status = co_await op.worker.RoundTrip(batch, op.counts);
  if (!status.ok()) {
    pool_->allocator().GiveUp();
    co_return status;
  }
  status = co_await RetireValue(op, where);
  co_return status;
}

Task<Status> BlinkTree::RetireValue(OpContext& op, OutOfLineValue where) {
  Status status;
  if (const auto page_class = BlockClassOf(where)) {
    pool_->allocator().Retire(pool_->clock(), *page_class, {where.block, 0});
    status = co_await pool_->allocator().Trim(op);
  } else {
    status = co_await pool_->allocator().FreeExtent(op, where.block, BlockReadBytes(where.length));
    if (!status.ok()) pool_->allocator().GiveUp();  // its block word names this member
  }
  co_return status;
}

Task<Status> BlinkTree::FreeBlock(OpContext& op, OutOfLineValue where, BlockWas was) {
  const uint64_t free_word = FreePageWord();
  uint64_t old = 0;
  Batch take(where.block.server());
  take.CompareAndSwap(where.block.offset(), where.unique_id, free_word, &old);
  Status status = co_await op.worker.RoundTrip(take, op.counts);
  if (!status.ok()) co_return status;
  if (old == where.unique_id || (old == free_word && was == BlockWas::kFreedPerhaps)) {
    Status retired = co_await RetireValue(op, where);
    stats_.upkeep_given_up.fetch_add(!retired.ok(), std::memory_order_relaxed);
  }
  co_return Status::Ok();
}

void BlinkTree::FreeLater(const LateBlocks::Block& late) {
  if (late_blocks_.Add(late)) return;
  pool_->allocator().GiveUp();
  pool_->redo_slots(late.slot_server).Give(late.slot_word);
}

Task<Status> BlinkTree::WriteBackAndFree(OpContext& op, LockedPage& leaf, Batch& batch,
                                         std::optional<OutOfLineValue> old_block,
                                         dsm::LocalLockTable::TakenWork& served) {
  const uint64_t free_word = FreePageWord();
  const bool together = old_block && old_block->block.server() == leaf.address.server();
  if (together && Mutated(Mutation::kValueFreedFirst)) {
    batch.WriteWord(old_block->block.offset(), &free_word);
  }
  const bool unlock_first = Mutated(Mutation::kUnlockBeforeWriteBack);
  if (unlock_first) AddUnlock(leaf, batch);
  if (old_block) {  // who finishes the write-back in our place frees the block too
    leaf.follow_up = old_block->block;
    leaf.follow_up_word = old_block->unique_id;
  }
  // The block on another server is freed behind the write-back: till then its record must stand.
  const bool apart = old_block && !together;
  if (apart) leaf.ForbidHandOver();
  const uint64_t lock_word = leaf.lock_word;
  leaf.keeps_slot = apart;
  AddWriteBack(leaf, batch);
  // Behind the leaf that no longer names the block, and ahead of the unlock: a batch that is repeated
  // after a failure still finds the block in nobody's hands.
  if (together) batch.WriteWord(old_block->block.offset(), &free_word);
  if (!unlock_first) AddUnlock(leaf, batch);
  Status status = co_await PostAndFinish(op, leaf, batch);
  Answer(served, status);
  if (!status.ok() || !old_block) co_return status;
  // The write is done, whether or not the old block can be given back.
  Status freed;
  if (together) {
    freed = co_await RetireValue(op, *old_block);
  } else {
    freed = co_await FreeBlock(op, *old_block, BlockWas::kNamed);
    if (freed.ok()) {
      pool_->redo_slots(leaf.address.server()).Give(lock_word);
    } else {
      FreeLater({old_block->block, old_block->unique_id, leaf.address.server(), lock_word});
    }
  }
  stats_.upkeep_given_up.fetch_add(!freed.ok(), std::memory_order_relaxed);
  co_return Status::Ok();
}

}  // namespace farleaf::index
