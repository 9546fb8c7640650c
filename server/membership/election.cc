#include "server/membership/election.h"

#include <algorithm>
#include <string_view>

#include "server/membership/counters.h"
#include "server/membership/path.h"

namespace farleaf::server::membership {

namespace {
constexpr std::string_view kCandidatePrefix = "n-";
constexpr size_t kCandidateNameBytes = 12;
}  // namespace

dsm::Task<Result<std::vector<std::string>>> Election::Candidates(dsm::Worker& worker) {
  // Not watched: each candidate that comes or goes would wake all of them.
  auto names = co_await session_->Children(worker, path_, Watch::kNothing);
  if (names.ok()) {
    std::erase_if(*names, [](const std::string& name) {
      return name.size() != kCandidateNameBytes || !name.starts_with(kCandidatePrefix);
    });
  }
  co_return names;
}

dsm::Task<Result<std::optional<std::string>>> Election::FindOwn(dsm::Worker& worker) {
  auto names = co_await Candidates(worker);
  if (!names.ok()) co_return names.status();
  for (const std::string& name : *names) {
    auto entry = co_await session_->Get(worker, ChildPath(path_, name), Watch::kNothing);
    if (entry.status().code() == StatusCode::kNotFound) continue;
    if (!entry.ok()) co_return entry.status();
    if (entry->bytes == name_) co_return std::optional(name);
  }
  co_return std::optional<std::string>();
}

dsm::Task<Status> Election::Stand(dsm::Worker& worker) {
  if (!own_.empty()) co_return Status::Ok();
  const Status made = co_await CreatePath(worker, *session_, path_);
  FARLEAF_CO_RETURN_IF_ERROR(made);
  auto found = co_await FindOwn(worker);
  if (!found.ok()) co_return found.status();
  if (*found) {
    own_ = **found;
    co_return Status::Ok();
  }
  auto created =
      co_await session_->Create(worker, ChildPath(path_, kCandidatePrefix), name_,
                                {.lifetime = Lifetime::kEphemeral, .naming = Naming::kSequential});
  if (!created.ok()) co_return created.status();
  own_ = std::string(LastName(*created));
  co_return Status::Ok();
}

dsm::Task<Status> Election::BecomeMaster(dsm::Worker& worker, uint64_t timeout_ns) {
  const uint64_t begun_ns = clock_->NowNs();
  while (true) {
    const Status stands = co_await Stand(worker);
    FARLEAF_CO_RETURN_IF_ERROR(stands);
    auto names = co_await Candidates(worker);
    if (!names.ok()) co_return names.status();
    const auto own = std::lower_bound(names->begin(), names->end(), own_);
    if (own == names->end() || *own != own_) {  // somebody removed it
      own_.clear();
    } else if (own == names->begin()) {
      is_master_ = true;
      co_return Status::Ok();
    } else {
      const std::string before = ChildPath(path_, *std::prev(own));
      const uint64_t seen = session_->ChangeCount(before);
      auto entry = co_await session_->Get(worker, before, Watch::kChanges);
      if (!entry.ok() && entry.status().code() != StatusCode::kNotFound) co_return entry.status();
      const uint64_t waited_ns = clock_->NowNs() - begun_ns;
      if (waited_ns >= timeout_ns) {
        co_return Status::DeadlineExceeded("'" + name_ + "' is not the master of " + path_);
      }
      if (!entry.ok()) continue;  // it has just gone
      [[maybe_unused]] const bool changed =
          co_await session_->AwaitChange(worker, before, seen, timeout_ns - waited_ns);
    }
    if (clock_->NowNs() - begun_ns >= timeout_ns) {
      co_return Status::DeadlineExceeded("'" + name_ + "' is not the master of " + path_);
    }
  }
}

dsm::Task<Status> Election::AwaitLoss(dsm::Worker& worker, uint64_t timeout_ns) {
  FARLEAF_CHECK(!own_.empty());
  const std::string path = ChildPath(path_, own_);
  const uint64_t begun_ns = clock_->NowNs();
  while (true) {
    const uint64_t seen = session_->ChangeCount(path);
    auto entry = co_await session_->Get(worker, path, Watch::kChanges);
    const StatusCode code = entry.status().code();
    if (code == StatusCode::kFenced || code == StatusCode::kNotFound) {
      is_master_ = false;
      own_.clear();
      co_return entry.status();
    }
    const uint64_t waited_ns = clock_->NowNs() - begun_ns;
    if (waited_ns >= timeout_ns) {
      co_return Status::DeadlineExceeded("'" + name_ + "' is still the master of " + path_);
    }
    [[maybe_unused]] const bool changed =
        co_await session_->AwaitChange(worker, path, seen, timeout_ns - waited_ns);
  }
}

dsm::Task<Result<std::optional<std::string>>> Election::Master(dsm::Worker& worker) {
  auto names = co_await Candidates(worker);
  if (names.status().code() == StatusCode::kNotFound) co_return std::optional<std::string>();
  if (!names.ok()) co_return names.status();
  for (const std::string& name : *names) {
    auto entry = co_await session_->Get(worker, ChildPath(path_, name), Watch::kNothing);
    if (entry.ok()) co_return std::optional(std::move(entry->bytes));
    if (entry.status().code() != StatusCode::kNotFound) co_return entry.status();
  }
  co_return std::optional<std::string>();
}

dsm::Task<Status> Election::Resign(dsm::Worker& worker) {
  is_master_ = false;
  if (own_.empty()) {  // a Create whose end is unknown may have made one
    auto found = co_await FindOwn(worker);
    if (!found.ok()) co_return found.status();
    if (!*found) co_return Status::Ok();
    own_ = **found;
  }
  Status removed = co_await session_->Remove(worker, ChildPath(path_, own_), std::nullopt);
  if (removed.ok() || removed.code() == StatusCode::kNotFound) {
    own_.clear();
    co_return Status::Ok();
  }
  co_return removed;
}

}  // namespace farleaf::server::membership
