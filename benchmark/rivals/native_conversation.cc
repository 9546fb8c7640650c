#include <utility>

#include "benchmark/rivals/conversation.h"
#include "client/session.h"

namespace farleaf::rivals {

namespace {

constexpr std::string_view kTree = "rivals";
constexpr uint64_t kPollMs = 1'000;

class NativeConversation final : public Conversation {
 public:
  NativeConversation(std::unique_ptr<client::Session> session, client::SessionTree tree)
      : session_(std::move(session)), tree_(std::move(tree)) {}

  Status Run(const Work& work, KeySequence& keys, Histogram* latency_ns) override {
    failure_ = Status::Ok();
    for (uint64_t done = 0; done < work.requests && failure_.ok(); done += work.depth) {
      begin_ns_ = clock_.NowNs();
      for (size_t i = 0; i < work.depth; ++i) Start(work.kind, keys.Next(), latency_ns);
      while (session_->pending() > 0) session_->Poll(kPollMs);
    }
    return failure_;
  }

 private:
  void Start(RequestKind kind, uint64_t number, Histogram* latency_ns) {
    key_.clear();
    AppendKey(number, &key_);
    if (kind == RequestKind::kSet) {
      value_.clear();
      AppendValue(number, 'n', &value_);
      tree_.PutAsync(key_, value_, [this, latency_ns](Result<bool> put) {
        latency_ns->Record(clock_.NowNs() - begin_ns_);
        if (!put.ok() && failure_.ok()) failure_ = put.status();
      });
      return;
    }
    tree_.GetAsync(key_, [this, number, latency_ns](Result<std::optional<std::string>> got) {
      latency_ns->Record(clock_.NowNs() - begin_ns_);
      if (failure_.ok()) failure_ = Check(number, got);
    });
  }
  Status Check(uint64_t number, const Result<std::optional<std::string>>& got) {
    if (!got.ok()) return got.status();
    key_.clear();
    AppendKey(number, &key_);
    if (got->has_value() && (*got)->size() == kValueBytes && (*got)->starts_with(key_)) {
      return Status::Ok();
    }
    return Status::Corruption("a wrong value of " + key_);
  }

  const MonotonicClock clock_;
  std::unique_ptr<client::Session> session_;
  client::SessionTree tree_;
  Status failure_;
  uint64_t begin_ns_ = 0;
  std::string key_, value_;
};

}  // namespace

Result<std::unique_ptr<Conversation>> ConnectNative(std::string_view url) {
  auto session = client::Session::Connect(url);
  if (!session.ok()) return session.status();
  auto tree = (*session)->OpenTree(kTree);
  if (!tree.ok() && tree.status().code() == StatusCode::kNotFound) {
    client::TreeSpec spec;
    spec.name = kTree;
    tree = (*session)->CreateTree(spec);
  }
  if (!tree.ok()) return tree.status();
  return std::unique_ptr<Conversation>(
      std::make_unique<NativeConversation>(std::move(*session), std::move(*tree)));
}

}  // namespace farleaf::rivals
