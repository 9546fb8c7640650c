// SharedReads: coroutines of one worker that READ the same bytes at the same time share one READ.
//
// What makes that linearizable is that a READ serves only those who came before it was posted. Who
// comes while one is in flight waits for the next: when the one in flight has completed, the first
// of those who wait posts a READ, which serves all who have come by then. So nobody waits for more
// than two READs, and of bytes that everybody wants one READ is in flight at a time.
// Why wait at all, rather than share only what is not posted yet: workers post at once, so that hardly
// anybody comes in between; and two READs in flight at a time would save half as much (index/blink/README.md).
//
// Who is alone with its READ pays one look into a table that is in the nearest cache.
//
// Invariants:
//   - the table holds a reader from the moment that it is to post, or has posted, until Complete;
//     what it reads stands in the table at most once;
//   - a reader lies in its coroutine's frame, which is suspended while others refer to it.
// Thread rule: one thread, the worker's.
#pragma once

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "dsm/address.h"
#include "dsm/base/check.h"
#include "dsm/base/random.h"

namespace farleaf::dsm {

class SharedReads {
 public:
  class Reader;

  /// How a wait for another's READ ended.
  enum class Joined : uint8_t {
    kNobody,  ///< nobody reads this now
    kServed,  ///< the bytes have been put where they were wanted, by a READ that was posted since Join
    kLeads,   ///< the next READ is this reader's to post: others wait for it
    kFailed,  ///< the other's READ has failed: to be posted without Lead
  };

  /// Readers in the order of their coming.
  struct List {
    Reader* first = nullptr;
    Reader* last = nullptr;
    void Append(Reader* reader);
  };

  /// One who reads. What is read is (address, part), of which only equality counts; `beside` takes what is read
  /// from elsewhere in the same round trip.
  class Reader {
   public:
    Reader(GlobalAddress address, uint64_t part, std::span<std::byte> into,
           std::span<std::byte> beside = {})
        : address_(address), part_(part), into_(into), beside_(beside) {}
    Reader(const Reader&) = delete;
    /// Reads something else from now on. REQUIRES: neither leads nor waits.
    void set_part(uint64_t part) { part_ = part; }
    bool leads() const { return leads_; }

   private:
    friend class SharedReads;
    GlobalAddress address_;
    uint64_t part_;
    std::span<std::byte> into_, beside_;
    Reader* below_ = nullptr;  ///< in the bucket
    Reader* next_ = nullptr;   ///< in a list of another reader
    List served_;              ///< who gets what its READ brings
    List waiting_;             ///< who came since that was posted
    std::coroutine_handle<> handle_;
    bool leads_ = false, posted_ = false;
    Joined joined_ = Joined::kNobody;
  };

  /// `ready`: what its worker resumes in its next turn.
  explicit SharedReads(std::vector<std::coroutine_handle<>>* ready) : ready_(ready) {}
  SharedReads(const SharedReads&) = delete;

  /// Waits for a READ that is posted from now on, if one of the same is in flight or about to be posted.
  struct [[nodiscard]] Joining {
    SharedReads* reads;
    Reader* reader;
    Reader* other;
    bool await_ready() const noexcept { return other == nullptr; }
    void await_suspend(std::coroutine_handle<> handle) {
      reader->handle_ = handle;
      reader->next_ = nullptr;
      other->waiting_.Append(reader);
    }
    Joined await_resume() const noexcept { return other ? reader->joined_ : Joined::kNobody; }
  };
  Joining Join(Reader& reader) { return {this, &reader, Find(reader)}; }

  /// Those who come from now on wait for this reader's READ, until it is posted. REQUIRES: Join has said
  /// kNobody or kLeads, without a suspension since.
  void Lead(Reader& reader) {
    if (reader.leads_) return;
    reader.leads_ = true;
    reader.posted_ = false;
    Reader*& bucket = BucketOf(reader);
    reader.below_ = std::exchange(bucket, &reader);
    ++leaders_;
  }
  /// Those who come from now on are not served by this reader's READ.
  void Posted(Reader& reader) {
    FARLEAF_DCHECK(reader.leads_ && !reader.posted_);
    reader.posted_ = true;
    reader.served_ = std::exchange(reader.waiting_, {});
  }
  /// The READ has ended. `copy(into, beside)` puts what it brought where another one wants it. REQUIRES: leads.
  enum class Brought : uint8_t { kBytes, kNothing };
  template <typename Copy>
  void Complete(Reader& reader, Brought brought, const Copy& copy) {
    FARLEAF_DCHECK(reader.leads_);
    if (!reader.posted_) reader.served_ = std::exchange(reader.waiting_, {});
    Remove(reader);
    if (brought ==
        Brought::kNothing) {  // each for itself: one wait for a server that is gone, not many
      ResumeAll(reader.served_, Joined::kFailed);
      ResumeAll(reader.waiting_, Joined::kFailed);
      return;
    }
    for (const Reader* other = reader.served_.first; other; other = other->next_) {
      copy(other->into_, other->beside_);
    }
    ResumeAll(reader.served_, Joined::kServed);
    // Behind those: what they want next may be the same, and is in time for the next READ.
    if (reader.waiting_.first) LeadNext(reader.waiting_);
  }

  /// The process is gone: no reader is looked at any more.
  void Abandon() {
    leaders_ = 0;
    buckets_.fill(nullptr);
  }
  bool empty() const { return leaders_ == 0; }

 private:
  static constexpr size_t kBuckets = 512;

  Reader*& BucketOf(const Reader& reader) {
    const uint64_t mixed = (reader.address_.word() ^ reader.part_) * 0x9e3779b97f4a7c15;
    return buckets_[mixed >> 32 & (kBuckets - 1)];
  }
  Reader* Find(const Reader& reader) {
    if (leaders_ == 0) return nullptr;
    Reader* at = BucketOf(reader);
    while (at && (at->address_ != reader.address_ || at->part_ != reader.part_)) at = at->below_;
    return at;
  }
  void Remove(Reader& reader) {
    Reader** at = &BucketOf(reader);
    while (*at != &reader) at = &(*at)->below_;
    *at = reader.below_;
    reader.leads_ = false;
    --leaders_;
  }
  void Resume(Reader* reader, Joined joined) {
    reader->joined_ = joined;
    ready_->push_back(reader->handle_);
  }
  void ResumeAll(List& list, Joined joined) {
    for (Reader* at = list.first; at; at = at->next_) Resume(at, joined);
    list = {};
  }
  void LeadNext(List& waiting) {
    Reader* const next = waiting.first;
    if (next->next_) next->waiting_ = {next->next_, waiting.last};
    waiting = {};
    Lead(*next);
    Resume(next, Joined::kLeads);
  }

  std::vector<std::coroutine_handle<>>* ready_;
  size_t leaders_ = 0;
  std::array<Reader*, kBuckets> buckets_{};
};

inline void SharedReads::List::Append(Reader* reader) {
  (last ? last->next_ : first) = reader;
  last = reader;
}

}  // namespace farleaf::dsm
