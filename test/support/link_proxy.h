// LinkProxy: a TCP port that passes bytes on to another, until a test cuts the two apart.
//
// Thread rule: one thread; it has one of its own for the bytes.
#pragma once

#include <atomic>
#include <list>
#include <string>
#include <thread>

#include "dsm/socket.h"

namespace farleaf {

class LinkProxy {
 public:
  explicit LinkProxy(std::string target);
  ~LinkProxy();
  LinkProxy(const LinkProxy&) = delete;

  const std::string& address() const { return address_; }
  /// Connections that are there break, and new ones are closed, until Heal.
  void Cut() { cut_ = true; }
  void Heal() { cut_ = false; }

 private:
  struct Link {
    dsm::UniqueFd client, server;
  };
  void Run();
  void Accept();
  /// Whether the link goes on.
  static bool Pass(int from, int to);

  const std::string target_;
  std::string address_;
  dsm::UniqueFd listening_;
  std::list<Link> links_;  // of the thread
  std::atomic<bool> cut_{false}, stopping_{false};
  std::thread thread_;
};

}  // namespace farleaf
