#include "server/membership/counters.h"

#include <charconv>

#include "server/membership/path.h"

namespace farleaf::server::membership {

namespace {

constexpr int kCountAttemptsMax = 100;
constexpr uint64_t kCountBackoffNsMax = 10 * kNsPerMs;

Result<uint64_t> ParseCounter(const std::string& path, const std::string& bytes) {
  uint64_t number = 0;
  const char* end = bytes.data() + bytes.size();
  const auto parsed = std::from_chars(bytes.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && number > 0 && number < UINT64_MAX) {
    return number;
  }
  return Status::Corruption("entry " + path + " is no counter: '" + bytes.substr(0, 40) + "'");
}

}  // namespace

dsm::Task<Status> CreatePath(dsm::Worker& worker, Membership& session, std::string path) {
  FARLEAF_CO_RETURN_IF_ERROR(CheckPath(path));
  for (size_t end = path.find('/', 1); path != "/"; end = path.find('/', end + 1)) {
    auto created = co_await session.Create(worker, path.substr(0, end), "", {});
    if (!created.ok() && created.status().code() != StatusCode::kAlreadyExists) {
      co_return created.status();
    }
    if (end == std::string::npos) break;
  }
  co_return Status::Ok();
}

dsm::Task<Result<uint64_t>> NextNumber(dsm::Worker& worker, Membership& session, std::string path) {
  for (int attempt = 0; attempt < kCountAttemptsMax; ++attempt) {
    auto last = co_await session.Get(worker, path, Watch::kNothing);
    Status status;
    uint64_t number = 1;
    if (last.ok()) {
      auto parsed = ParseCounter(path, last->bytes);
      if (!parsed.ok()) co_return parsed.status();
      number = *parsed + 1;
      auto set = co_await session.Set(worker, path, std::to_string(number), last->version);
      status = set.status();
    } else if (last.status().code() == StatusCode::kNotFound) {
      auto created = co_await session.Create(worker, path, "1", {});
      status = created.status();
    } else {
      co_return last.status();
    }
    if (status.ok()) co_return number;
    if (status.code() != StatusCode::kVersionMismatch &&
        status.code() != StatusCode::kAlreadyExists) {
      co_return status;
    }
    co_await worker.Sleep(worker.random().Below(kCountBackoffNsMax));
  }
  co_return Status::DeadlineExceeded("counter " + path + ": " + std::to_string(kCountAttemptsMax) +
                                     " attempts were overtaken");
}

dsm::Task<Result<dsm::MemberIdentity>> NextIncarnation(dsm::Worker& worker, Membership& session,
                                                       dsm::MemberId id) {
  const Status made = co_await CreatePath(worker, session, "/incarnations");
  FARLEAF_CO_RETURN_IF_ERROR(made);
  auto incarnation = co_await NextNumber(worker, session, "/incarnations/" + std::to_string(id));
  if (!incarnation.ok()) co_return incarnation.status();
  co_return dsm::MemberIdentity{id, *incarnation};
}

}  // namespace farleaf::server::membership
