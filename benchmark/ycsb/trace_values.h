// TraceValues: the values that a trace writes, made so that they can be verified, and the check of
// values of unknown origin.
//
// Under any key, of any size:
//   24 bytes and more: mark (8 bytes), version, length, CRC32C over key, header and filler, filler.
//   9 to 23: 32 bits of version, 40 of hash over key and version, filler that hangs on both.
//   to 8: the beginning of a hash of the key.
//   fixed8: RecordCodec's.
// What a load has written is told by RecordCodec. The rest is foreign: data that was there before,
// or, where nothing in the value marks it as the benchmark's (fixed8, below 24 bytes), damage.
//
// Thread rule: immutable after construction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "benchmark/ycsb/record.h"

namespace farleaf::ycsb {

enum class ValueOrigin : uint8_t {
  kOwn,      ///< a write of this key by a trace or a load
  kDamaged,  ///< marked as the benchmark's, but not what it wrote under this key
  kForeign,
};

class TraceValues {
 public:
  /// REQUIRES: `codec` outlives it and has no mix of sizes.
  explicit TraceValues(const RecordCodec* codec);

  /// REQUIRES: bytes is 8 where keys are fixed8.
  void Make(std::string_view key, uint64_t version, uint64_t bytes, std::string* value) const;
  /// `problem`: unless kOwn, expected and found.
  ValueOrigin Check(std::string_view key, std::string_view value, std::string* problem) const;

 private:
  void Fill(uint64_t offset, uint64_t from, std::string* value) const;
  ValueOrigin CheckMarked(std::string_view key, std::string_view value,
                          std::string* problem) const;

  const RecordCodec& codec_;
  std::string filler_;
};

}  // namespace farleaf::ycsb
