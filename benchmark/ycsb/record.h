// Keys and values of the benchmark, made so that whatever is read can be verified.
//
// fixed8: the key is the key number, scrambled by a bijection (hashed order) or as it stands
//   (ordered), big-endian. The value is 24 bits of version and 40 bits of hash over key and
//   version.
// bytes: the key is "user" and a decimal number, as in YCSB. The value is a header (key number,
//   version, length, CRC32C over key, header and filler) and filler.
// bytes with a mix of sizes (kv_mix.h): keys are of 24 bytes, and the value is as long as its key says. One too short for
//   a header is 32 bits of version and 40 bits of hash over key and version.
//
// Thread rule: RecordCodec is immutable after construction and may be shared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "benchmark/ycsb/kv_mix.h"
#include "benchmark/ycsb/workload.h"

namespace farleaf::ycsb {

inline constexpr uint64_t kValueHeaderBytes = 24;
inline constexpr uint64_t kShortValueBytes = kPairBytes[0] - kMixKeyBytes;
static_assert(kShortValueBytes == 4 + 5, "version and hash");

class RecordCodec {
 public:
  RecordCodec(KeyLayout layout, InsertOrder order, uint64_t zero_padding, uint64_t value_bytes,
              KvMix mix = KvMix::kNone);

  void MakeKey(uint64_t number, std::string* key) const;
  /// Versions differ in their low 24 bits only (fixed8), or 32 (short values).
  void MakeValue(std::string_view key, uint64_t number, uint64_t version, std::string* value) const;
  /// nullopt if `value` was written by MakeValue for `key`; else what is wrong with it, with
  /// expected and found.
  std::optional<std::string> Check(std::string_view key, std::string_view value) const;
  /// The version in a value that passes Check.
  uint64_t VersionOf(std::string_view value) const;
  /// Of a value of this key: what MakeValue makes, and with a mix what Check expects.
  uint64_t ValueBytes(std::string_view key) const;
  /// Where keys sort like their numbers: the number of `key`, if it is one of MakeKey's.
  std::optional<uint64_t> NumberOfOrderedKey(std::string_view key) const;

  KeyLayout layout() const { return layout_; }

 private:
  uint64_t Fixed8Value(uint64_t key, uint64_t version) const;
  std::optional<std::string> CheckBytes(std::string_view key, std::string_view value) const;
  std::optional<std::string> CheckShort(std::string_view key, std::string_view value) const;

  KeyLayout layout_;
  InsertOrder order_;
  uint64_t zero_padding_;
  uint64_t value_bytes_;
  KvMix mix_;
  std::string filler_;  ///< bytes: source of filler, at least value_bytes_ long
};

/// Text for messages: 8-byte binary as hexadecimal, else printable characters, shortened.
std::string Printable(std::string_view bytes);

}  // namespace farleaf::ycsb
