// ResultFiles: where a run's results are written, besides what it prints.
//
// Thread rule: one owner.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "benchmark/ycsb/measurement.h"
#include "dsm/base/status.h"

namespace farleaf::ycsb {

class ResultFiles {
 public:
  /// Before anything is measured, so that a wrong path is found then. Empty: not wanted.
  /// InvalidArgument names flag and path.
  Status Open(const std::string& json_path, const std::string& hdr_log_path);
  /// `json` is ToJson of `phases`. IoError names flag and path.
  Status Write(const nlohmann::ordered_json& json, std::span<const PhaseResult> phases);

 private:
  std::string json_path_, hdr_log_path_;
  std::ofstream json_, hdr_log_;
};

}  // namespace farleaf::ycsb
