// The Store behind a compute server.
#include <optional>
#include <utility>

#include "client/session.h"
#include "server/control/store.h"

namespace farleaf::server {
namespace {

class ServerStore final : public Store {
 public:
  explicit ServerStore(std::unique_ptr<client::Session> session) : session_(std::move(session)) {}

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
  Result<client::Rows> Scan(const client::ScanRange& range) override { return tree_->Scan(range); }

  Result<std::vector<std::pair<std::string, std::string>>> Status() override {
    const auto text = session_->ServerStats();
    if (!text.ok()) return text.status();
    std::vector<std::pair<std::string, std::string>> lines = {{"server", session_->server()}};
    std::string_view rest = *text;
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      const size_t space = line.rfind(' ');
      if (space == std::string_view::npos) continue;
      lines.emplace_back(line.substr(0, space), line.substr(space + 1));
    }
    return lines;
  }
  Result<index::CheckReport> Check() override {
    return farleaf::Status::InvalidArgument(
        "check reads the memory servers itself: give --pool URL instead of --server");
  }

 private:
  Result<client::TreeInfo> Keep(Result<client::SessionTree> tree) {
    if (!tree.ok()) return tree.status();
    tree_.emplace(std::move(*tree));
    return tree_->info();
  }

  std::unique_ptr<client::Session> session_;
  std::optional<client::SessionTree> tree_;
};

}  // namespace

Result<std::unique_ptr<Store>> OpenServerStore(const std::string& url, uint64_t deadline_ms) {
  client::Options options;
  options.deadline_ms = deadline_ms;
  options.connect_timeout_ms = deadline_ms;
  auto session = client::Session::Connect(url, options);
  if (!session.ok()) return session.status();
  return std::unique_ptr<Store>(std::make_unique<ServerStore>(std::move(*session)));
}

}  // namespace farleaf::server
