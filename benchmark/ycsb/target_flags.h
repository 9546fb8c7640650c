// The flags that say how a target is reached and opened: those that two targets of a comparison may
// differ in.
//
// Thread rule: one thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "benchmark/ycsb/report.h"
#include "benchmark/ycsb/target.h"
#include "dsm/base/status.h"

namespace farleaf::ycsb {

// What the second argument holds is the default of each flag, and is replaced where `app` is given
// it; it has to outlive the parsing.

void DeclareAccessFlags(CLI::App& app, ClientAccess* access);
/// Of trees, caches and verb programs.
void DeclareTreeFlags(CLI::App& app, RunConfiguration* run);

/// Sets in `run` what `text` gives of the flags above, as a shell would split it, and -p
/// farleaf.tree=NAME. InvalidArgument names what is none of them.
Status ParseTargetFlags(const std::string& text, RunConfiguration* run);

}  // namespace farleaf::ycsb
