// Conversation: one connection of a client to a server under comparison, one request kind at a time: `depth` requests
// are sent together, and their answers awaited, before the next are (closed loop). Every answer is checked.
//
// Keys are of 16 bytes and values of 100, of which the first 16 are the key, in all servers alike.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dsm/base/clock.h"
#include "dsm/base/histogram.h"
#include "dsm/base/random.h"
#include "dsm/base/result.h"

namespace farleaf::rivals {

inline constexpr size_t kKeyBytes = 16, kValueBytes = 100;

enum class RequestKind : uint8_t { kGet, kSet };

enum class Protocol : uint8_t { kRedis, kMemcached, kNative };

std::string_view NameOf(RequestKind kind);
std::string_view NameOf(Protocol protocol);
/// Appends the key of this number.
void AppendKey(uint64_t number, std::string* out);
/// Appends a value for the key of this number: `letter` behind the key.
void AppendValue(uint64_t number, char letter, std::string* out);

/// Which keys are asked for.
class KeySequence {
 public:
  virtual ~KeySequence() = default;
  virtual uint64_t Next() = 0;
};

class RandomKeys final : public KeySequence {
 public:
  RandomKeys(uint64_t seed, uint64_t keys) : random_(seed), keys_(keys) {}
  uint64_t Next() override { return random_.Below(keys_); }

 private:
  Random random_;
  const uint64_t keys_;
};

/// Each of `keys` once, in no order.
class AllKeys final : public KeySequence {
 public:
  explicit AllKeys(uint64_t keys) : keys_(keys) {}
  uint64_t Next() override { return next_++ % keys_ * kPrime % keys_; }

 private:
  static constexpr uint64_t kPrime = 1'000'000'007;  // divides no number of keys that is allowed
  const uint64_t keys_;
  uint64_t next_ = 0;
};

struct Work {
  RequestKind kind = RequestKind::kGet;
  uint64_t requests = 0;  ///< rounded up to a multiple of the depth
  size_t depth = 1;
};

class Conversation {
 public:
  virtual ~Conversation() = default;
  /// Does the work. `latency_ns`: of each request, from before its batch was sent to when its answer was taken.
  /// Fails with the first answer that is wrong.
  virtual Status Run(const Work& work, KeySequence& keys, Histogram* latency_ns) = 0;
};

/// `address`: HOST:PORT, or a farleaf URL for the native protocol.
Result<std::unique_ptr<Conversation>> Connect(Protocol protocol, std::string_view address);

Result<std::unique_ptr<Conversation>> ConnectText(Protocol protocol, std::string_view address);
Result<std::unique_ptr<Conversation>> ConnectNative(std::string_view url);

}  // namespace farleaf::rivals
