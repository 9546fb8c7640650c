// RegionAgent: what opens a memory server's region to clients of one fabric.
//
// Thread rule: built and destroyed by one thread; it has threads of its own.
#pragma once

#include <cstddef>
#include <string>

namespace farleaf::dsm {

class RegionAgent {
 public:
  /// Closes every connection; nothing from them can land afterwards.
  virtual ~RegionAgent() = default;
  /// What a Directory carries: FABRIC:ADDRESS.
  virtual const std::string& endpoint() const = 0;
  /// Connections that have passed the handshake and are open.
  virtual size_t connections() const = 0;
};

}  // namespace farleaf::dsm
