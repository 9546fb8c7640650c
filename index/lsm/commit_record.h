// Commits: what becomes durable as one; the payload of the recovery log's records (log_format.md).
//
// Invariants: parsing is total, and accepts only what a CommitWriter can have made.
// Thread rule: value types.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "index/lsm/log_record.h"
#include "index/lsm/types.h"

namespace farleaf::index::lsm {

enum class ChangeKind : uint8_t { kPut = 0, kPutPointer = 1, kDelete = 2, kDeleteRange = 3 };

/// Each has one sequence.
struct Change {
  ChangeKind kind = ChangeKind::kDelete;
  std::string_view key = {};  ///< kDeleteRange: its start
  std::string_view end = {};  ///< kDeleteRange: behind its last key
  std::string_view value = {};
  ValuePointer pointer = {};
  uint64_t expires_ms = 0;  ///< kPut, kPutPointer; 0: never
};

/// Encodes a commit; used again and again.
class CommitWriter {
 public:
  CommitWriter() { Clear(); }
  void Clear();
  /// REQUIRES: key and value within their limits; for kDeleteRange, key < end.
  void Add(const Change& change);
  uint32_t changes() const { return changes_; }
  /// The log puts the first sequence into its first 8 bytes. It fits if it is <= kLogPayloadBytesMax.
  std::span<const std::byte> payload() const { return AsBytes(bytes_); }

 private:
  std::string bytes_;
  uint32_t changes_ = 0;
};

inline constexpr uint32_t kCommitHeadBytes = 12;  ///< first sequence u64 · changes u32
/// What it takes of a commit's payload, which has kCommitHeadBytes besides.
uint64_t ChangeBytes(const Change& change);

/// Reads a commit, change by change.
class CommitReader {
 public:
  static std::optional<CommitReader> Parse(std::span<const std::byte> payload);

  Sequence first() const { return first_; }
  uint32_t changes() const { return changes_; }
  Sequence last() const { return first_ + changes_ - 1; }
  /// In order; views are of the payload. False: there are no more.
  bool Next(Change* change);

 private:
  CommitReader(Sequence first, uint32_t changes, std::span<const std::byte> rest)
      : first_(first), changes_(changes), left_(changes), rest_(rest) {}
  Sequence first_;
  uint32_t changes_, left_;
  ByteReader rest_;
};

}  // namespace farleaf::index::lsm
