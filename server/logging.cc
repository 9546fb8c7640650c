#include "server/logging.h"

#include <spdlog/formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>

#include "dsm/base/log.h"

namespace farleaf::server {

namespace {

void AppendJsonString(std::string_view text, spdlog::memory_buf_t* out) {
  const auto append = [out](std::string_view piece) {
    out->append(piece.data(), piece.data() + piece.size());
  };
  append("\"");
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      const char escaped[] = {'\\', c};
      append({escaped, 2});
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
      append(escaped);
    } else {
      append({&c, 1});
    }
  }
  append("\"");
}

class JsonFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const auto append = [&out](std::string_view piece) {
      out.append(piece.data(), piece.data() + piece.size());
    };
    const auto ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(message.time.time_since_epoch())
            .count();
    append("{\"time_ms\":" + std::to_string(ms) + ",\"program\":");
    AppendJsonString({message.logger_name.data(), message.logger_name.size()}, &out);
    append(",\"level\":");
    const auto level = spdlog::level::to_string_view(message.level);
    AppendJsonString({level.data(), level.size()}, &out);
    append(",\"message\":");
    AppendJsonString({message.payload.data(), message.payload.size()}, &out);
    append("}\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<JsonFormatter>();
  }
};

}  // namespace

void AddLogOptions(ConfigSchema& schema, LogOptions* options) {
  schema.AddEnum("log_level", "least important message to log", &options->level,
                 {{"debug", LogLevel::kDebug},
                  {"info", LogLevel::kInfo},
                  {"warn", LogLevel::kWarn},
                  {"error", LogLevel::kError},
                  {"off", LogLevel::kOff}});
  schema.AddString("log_file", "append the log to this file instead of standard error",
                   &options->file);
  schema.AddEnum("log_format", "lines of text, or one JSON object a line", &options->format,
                 {{"text", LogFormat::kText}, {"json", LogFormat::kJson}});
}

Status SetUpLog(const std::string& program, const LogOptions& options) {
  spdlog::sink_ptr sink;
  if (options.file.empty()) {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  } else {
    // The sink's constructor throws when it cannot open, so the file is tried first.
    std::FILE* file = std::fopen(options.file.c_str(), "ae");
    if (file == nullptr) {
      return Status::IoError("log_file " + options.file + ": " + std::strerror(errno));
    }
    std::fclose(file);
    sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file);
  }
  auto logger = std::make_shared<spdlog::logger>(program, std::move(sink));
  constexpr spdlog::level::level_enum kLevels[] = {spdlog::level::debug, spdlog::level::info,
                                                   spdlog::level::warn, spdlog::level::err,
                                                   spdlog::level::off};
  logger->set_level(kLevels[static_cast<size_t>(options.level)]);
  if (options.format == LogFormat::kJson) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %n %l %v");
  }
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return Status::Ok();
}

}  // namespace farleaf::server
