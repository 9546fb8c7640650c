// farleafctl lsm: tools for the data directory of an LSM store (compute_server --engine lsm) that no process serves, be it closed or
// crashed.
//
// Exit codes: 0 done, or sound · 1 failed, or damage was found · 2 wrong arguments, a directory without a store among them.
//
// Thread rule: one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "server/control/text_form.h"

namespace farleaf::server {

struct LsmArguments {
  std::string directory, to;
  std::string start;
  std::optional<std::string> end;
  uint64_t limit = 0;  ///< 0: none
  TextForm form = TextForm::kText;
  bool tables = false;
  bool json = false;
};

/// Returns the exit code.
using LsmCommand = int (*)(const LsmArguments&);

/// `chosen` is set by the parsing, if the command is one of these.
void DeclareLsmCommands(CLI::App& app, LsmArguments* arguments, LsmCommand* chosen);

}  // namespace farleaf::server
