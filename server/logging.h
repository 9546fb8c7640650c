// The log of a process: where FARLEAF_LOG goes. Set up once by main().
//
// Thread rule: SetUpLog before the first thread is started.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/base/status.h"
#include "server/config.h"

namespace farleaf::server {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarn, kError, kOff };

enum class LogFormat : uint8_t { kText, kJson };  ///< kJson: one object a line

struct LogOptions {
  LogLevel level = LogLevel::kInfo;
  std::string file;  ///< empty: standard error
  LogFormat format = LogFormat::kText;
};

/// Declares log_level, log_file and log_format.
void AddLogOptions(ConfigSchema& schema, LogOptions* options);
/// IoError: the file cannot be opened.
Status SetUpLog(const std::string& program, const LogOptions& options);

}  // namespace farleaf::server
