// Terminal: standard input and output as a live table wants them: keys come as they are pressed, and SIGINT and
// SIGTERM end it. Where they are no terminal, only the signals are looked at.
//
// Invariant: whatever was changed of the terminal is as it was when this is destroyed.
// Thread rule: one thread; built before others are started.
#pragma once

#include <termios.h>

#include <cstdint>
#include <memory>

#include "dsm/base/result.h"
#include "server/shutdown.h"

namespace farleaf::server {

class Terminal {
 public:
  static Result<std::unique_ptr<Terminal>> Open();
  ~Terminal();
  Terminal(const Terminal&) = delete;

  /// Waits for so long; returns whether q was pressed, or a signal came, before that.
  bool WaitForQuit(uint64_t ms);
  /// A terminal is shown what comes next from its top left corner on.
  void Clear();

 private:
  Terminal() = default;
  std::unique_ptr<ShutdownSignal> signals_;
  bool keys_ = false, screen_ = false;
  termios before_{};
};

}  // namespace farleaf::server
