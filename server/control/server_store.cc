// The Store behind a compute server.
#include <optional>
#include <utility>

#include "client/session.h"
#include "server/control/store.h"

namespace farleaf::server {
namespace {

class ServerStore final : public Store {
 public:
  ServerStore(std::unique_ptr<client::Session> session, uint64_t deadline_ms, const Clock* clock)
      : session_(std::move(session)), deadline_ms_(deadline_ms), clock_(clock) {}

  Result<std::vector<client::TreeInfo>> ListTrees() override { return session_->ListTrees(); }
  Result<client::TreeInfo> CreateTree(const client::TreeSpec& spec) override {
    return Keep(session_->CreateTree(spec));
  }
  Result<client::TreeInfo> OpenTree(std::string_view name) override {
    return Keep(session_->OpenTree(name));
  }
  Result<client::Value> Get(std::string_view key) override { return tree_->Get(key); }
  Result<bool> Put(std::string_view key, std::string_view value) override {
    return tree_->Put(key, value);
  }
  Result<bool> Delete(std::string_view key) override { return tree_->Delete(key); }
  Result<client::CompareAndSetResult> CompareAndSet(std::string_view key, std::string_view expected,
                                                    std::string_view value) override {
    return tree_->CompareAndSet(key, expected, value);
  }
  Result<int64_t> Add(std::string_view key, int64_t delta,
                      std::optional<int64_t> initial) override {
    return tree_->Add(key, delta, initial);
  }
  Result<client::Rows> Scan(const client::ScanRange& range) override { return tree_->Scan(range); }

  Result<std::vector<std::pair<std::string, std::string>>> Status() override {
    const auto text = session_->ServerStats();
    if (!text.ok()) return text.status();
    std::vector<std::pair<std::string, std::string>> lines = {{"server", session_->server()}};
    std::string_view rest = *text;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      // Values may have spaces; so may trees' names, whose values are numbers.
      const size_t space = line.starts_with("tree.") ? line.rfind(' ') : line.find(' ');
      if (space == std::string_view::npos) continue;
      lines.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return lines;
  }
  Result<std::vector<std::pair<std::string, std::string>>> PoolStatus() override {
    const auto pool = OpenItsPool();
    if (!pool.ok()) return pool.status();
    return (*pool)->Status();
  }
  Result<std::string> SlowLog() override { return session_->SlowLog(); }
  // What concerns the memory servers goes there itself, to the pool that the compute server names.
  Result<index::CheckReport> Check() override {
    const auto pool = OpenItsPool();
    if (!pool.ok()) return pool.status();
    return (*pool)->Check();
  }
  Result<std::vector<PoolMember>> Members(uint64_t watch_ms) override {
    const auto pool = OpenItsPool();
    if (!pool.ok()) return pool.status();
    return (*pool)->Members(watch_ms);
  }
  Result<std::vector<CutOffOutcome>> CutOff(const dsm::MemberIdentity& member) override {
    const auto pool = OpenItsPool();
    if (!pool.ok()) return pool.status();
    return (*pool)->CutOff(member);
  }
  Result<index::MemberRecovered> Recover(
      const dsm::MemberIdentity& member,
      std::function<void(const std::string&)> progress) override {
    const auto pool = OpenItsPool(StoreAccess::kWrite);
    if (!pool.ok()) return pool.status();
    return (*pool)->Recover(member, std::move(progress));
  }

 private:
  Result<std::unique_ptr<Store>> OpenItsPool(StoreAccess access = StoreAccess::kRead) {
    const auto text = session_->ServerStats();
    if (!text.ok()) return text.status();
    constexpr std::string_view kName = "pool.bootstrap ";
    const size_t at = text->find(kName);
    if (at == std::string::npos && text->find("\nengine lsm\n") != std::string::npos) {
      return farleaf::Status::Unimplemented(session_->server() +
                                            " keeps its trees on its own disk, and is in no pool");
    }
    if (at == std::string::npos) {
      return farleaf::Status::Unimplemented(session_->server() +
                                            " does not tell its pool: give --pool URL instead");
    }
    const size_t begin = at + kName.size();
    const std::string bootstrap = text->substr(begin, text->find('\n', begin) - begin);
    auto pool = OpenPoolStore(bootstrap, deadline_ms_, access, clock_);
    if (!pool.ok()) {
      return pool.status().WithContext("the pool of " + session_->server() + ", " + bootstrap);
    }
    return pool;
  }
  Result<client::TreeInfo> Keep(Result<client::SessionTree> tree) {
    if (!tree.ok()) return tree.status();
    tree_.emplace(std::move(*tree));
    return tree_->info();
  }

  std::unique_ptr<client::Session> session_;
  const uint64_t deadline_ms_;
  const Clock* const clock_;
  std::optional<client::SessionTree> tree_;
};

}  // namespace

Result<std::unique_ptr<Store>> OpenServerStore(const std::string& url,
                                               const client::Options& options, const Clock* clock) {
  auto session = client::Session::Connect(url, options);
  if (!session.ok()) return session.status();
  return std::unique_ptr<Store>(
      std::make_unique<ServerStore>(std::move(*session), options.deadline_ms, clock));
}

}  // namespace farleaf::server
