// EventQueue: what will happen in a simulated world, in order of time; at one time, in the order in
// which it was put in.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace farleaf::dsm {

enum class SimEventKind : uint8_t {
  kPiece,       ///< at a memory server: `subject` flight, `detail` piece
  kHello,       ///< at a memory server: `subject` link, `detail` attempt
  kCompletion,  ///< at a compute server: `subject` flight
  kWelcome,     ///< at a compute server: `subject` link, `detail` attempt
  kReset,       ///< at a compute server: `subject` link, `detail` generation
  kRunThread,   ///< `subject` thread
  kCall,        ///< `subject` number of a function
  kLeaseLook,   ///< at a memory server: `subject` server looks at its lease words
};

struct SimEvent {
  uint64_t at_ns;
  uint64_t sequence;
  SimEventKind kind;
  uint32_t subject;
  uint32_t detail;
};

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const SimEvent& first() const { return heap_.front(); }
  void Push(uint64_t at_ns, SimEventKind kind, uint32_t subject, uint32_t detail) {
    heap_.push_back({at_ns, next_sequence_++, kind, subject, detail});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }
  SimEvent Pop() {
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const SimEvent event = heap_.back();
    heap_.pop_back();
    return event;
  }

 private:
  static bool Later(const SimEvent& a, const SimEvent& b) {
    return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.sequence > b.sequence;
  }

  std::vector<SimEvent> heap_;
  uint64_t next_sequence_ = 0;
};

}  // namespace farleaf::dsm
