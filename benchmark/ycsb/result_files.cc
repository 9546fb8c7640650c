#include "benchmark/ycsb/result_files.h"

#include "benchmark/ycsb/hdr_log.h"

namespace farleaf::ycsb {

namespace {

Status OpenFile(const char* flag, const std::string& path, std::ofstream* file) {
  if (path.empty()) return Status::Ok();
  file->open(path);
  if (*file) return Status::Ok();
  return Status::InvalidArgument(std::string(flag) + " " + path +
                                 ": cannot be opened for writing");
}

Status CloseFile(const char* flag, const std::string& path, std::ofstream* file) {
  file->close();
  if (*file) return Status::Ok();
  return Status::IoError(std::string(flag) + " " + path + ": cannot be written");
}

}  // namespace

Status ResultFiles::Open(const std::string& json_path, const std::string& hdr_log_path) {
  json_path_ = json_path;
  hdr_log_path_ = hdr_log_path;
  FARLEAF_RETURN_IF_ERROR(OpenFile("--json", json_path, &json_));
  return OpenFile("--hdr-log", hdr_log_path, &hdr_log_);
}

Status ResultFiles::Write(const nlohmann::ordered_json& json,
                          std::span<const PhaseResult> phases) {
  if (json_.is_open()) {
    json_ << json.dump(2) << "\n";
    FARLEAF_RETURN_IF_ERROR(CloseFile("--json", json_path_, &json_));
  }
  if (!hdr_log_.is_open()) return Status::Ok();
  WriteHdrLog(phases, hdr_log_);
  return CloseFile("--hdr-log", hdr_log_path_, &hdr_log_);
}

}  // namespace farleaf::ycsb
