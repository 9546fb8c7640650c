// SimTrace: all that happened in a simulated world, as a hash that tells two runs apart and, on
// request, as text.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "dsm/base/random.h"

namespace farleaf::dsm {

class SimTrace {
 public:
  using Sink = std::function<void(uint64_t now_ns, const std::string& line)>;

  void Mix(uint64_t word) { hash_ = Mix64(hash_ ^ word); }
  uint64_t hash() const { return hash_; }

  void set_sink(Sink sink) { sink_ = std::move(sink); }
  /// Whether text is wanted: it is made only then.
  bool wants_text() const { return sink_ != nullptr; }
  void Say(uint64_t now_ns, const std::string& line) {
    if (sink_) sink_(now_ns, line);
  }

 private:
  uint64_t hash_ = 0;
  Sink sink_;
};

}  // namespace farleaf::dsm
