#include "server/cluster/peer_link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "dsm/base/check.h"

namespace farleaf::server::cluster {

namespace {

constexpr uint64_t kIdlePollMs = 60'000;
constexpr uint64_t kReconnectPauseNs = 50 * kNsPerMs;
constexpr uint64_t kOpenTreeMs = 2'000;

}  // namespace

PeerLink::PeerLink(std::string url, const client::Options& options, const Clock* clock,
                   Counts* counts)
    : url_(std::move(url)),
      options_(options),
      clock_(clock),
      counts_(counts),
      wake_fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { Run(); }) {
  FARLEAF_CHECK(wake_fd_ >= 0, errno);
}

PeerLink::~PeerLink() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  thread_.join();
  ::close(wake_fd_);
}

void PeerLink::Submit(PeerRequest* request) {
  {
    std::lock_guard lock(mutex_);
    started_.push_back(request);
  }
  // Sequentially consistent with Run: either it sees the request, or we see it asleep.
  if (sleeping_.load()) Wake();
}

void PeerLink::Wake() {
  const uint64_t one = 1;
  // A full counter means that the wake-up is already on its way.
  [[maybe_unused]] const ssize_t written = ::write(wake_fd_, &one, sizeof one);
}

bool PeerLink::TakeStarted(std::vector<PeerRequest*>* taken) {
  std::lock_guard lock(mutex_);
  taken->swap(started_);
  return !stopping_;
}

bool PeerLink::HasStarted() {
  std::lock_guard lock(mutex_);
  return !started_.empty() || stopping_;
}

void PeerLink::Run() {
  std::vector<PeerRequest*> taken;
  while (TakeStarted(&taken)) {
    for (PeerRequest* request : taken) Begin(request);
    taken.clear();
    Wait();
    if (session_ && !session_->connected()) DropSession();
  }
  DropSession();
  for (PeerRequest* request : taken) {
    request->Fail(Status::Unavailable(url_ + ": this node is leaving"));
  }
}

void PeerLink::Wait() {
  sleeping_.store(true);
  const bool more = HasStarted();
  if (session_) {
    session_->Poll(more ? 0 : kIdlePollMs, wake_fd_);
  } else if (!more) {
    pollfd wake{wake_fd_, POLLIN, 0};
    ::poll(&wake, 1, static_cast<int>(kIdlePollMs));
  }
  sleeping_.store(false);
  uint64_t count;
  [[maybe_unused]] const ssize_t drained = ::read(wake_fd_, &count, sizeof count);
}

void PeerLink::Begin(PeerRequest* request) {
  const Status connected = Connect();
  if (!connected.ok()) {
    counts_->unreachable.fetch_add(1);
    return request->Fail(connected);
  }
  const PeerRequest::About& about = request->about();
  if (about.view < view_) {
    return request->Fail(Status::Fenced(url_ + ": routed by an older map than requests before"));
  }
  UseView(about.view);
  Tree& tree = trees_[std::string(about.tree)];
  if (tree.open) return Start(*tree.open, request);
  tree.waiting.push_back(request);
  if (tree.waiting.size() == 1) Open(std::string(about.tree));
}

Status PeerLink::Connect() {
  if (session_) return Status::Ok();
  if (clock_->NowNs() < retry_at_ns_) return why_not_;
  auto session = client::Session::Connect(url_, options_);
  if (session.ok()) {
    session_ = std::move(*session);
    counts_->connects.fetch_add(1);
    return Status::Ok();
  }
  // Whatever it was refused for, nothing was done, and another node may serve the keys soon.
  why_not_ = Status::Unavailable(session.status().ToString());
  retry_at_ns_ = clock_->NowNs() + kReconnectPauseNs;
  return why_not_;
}

// What is queued under the view so far goes out under it, as far as the socket takes it.
void PeerLink::UseView(uint32_t view) {
  if (view == view_) return;
  session_->Flush();
  session_->set_view(view);
  view_ = view;
}

void PeerLink::Open(const std::string& name) {
  auto operation = client::Session::NewOpenTree(name);
  if (!operation.ok()) return Opened(name, operation.status());
  operation->callback = client::Callback<client::OpenedTree>(
      [this, name](Result<client::OpenedTree> opened) { Opened(name, std::move(opened)); });
  session_->Submit(std::move(*operation), {.deadline_ms = kOpenTreeMs});
}

void PeerLink::Opened(const std::string& name, Result<client::OpenedTree> opened) {
  Tree& tree = trees_[name];
  const std::vector<PeerRequest*> waiting = std::exchange(tree.waiting, {});
  if (!opened.ok()) {
    // Also NotFound: it reads what the membership had a moment ago, before the tree was made.
    const Status why = Status::Unavailable("tree \"" + name + "\": " + opened.status().ToString());
    for (PeerRequest* request : waiting) request->Fail(why);
    return;
  }
  tree.open.emplace(session_.get(), std::move(*opened));
  for (PeerRequest* request : waiting) Start(*tree.open, request);
}

void PeerLink::Start(client::SessionTree& tree, PeerRequest* request) {
  const uint64_t now_ns = clock_->NowNs(), end_ns = request->about().deadline_ns;
  if (end_ns < now_ns + kNsPerMs) {
    return request->Fail(Status::DeadlineExceeded(url_ + ": it was not sent before its deadline"));
  }
  counts_->requests.fetch_add(1);
  request->Start(tree, {.deadline_ms = (end_ns - now_ns) / kNsPerMs,
                        .durability = request->about().durability});
}

void PeerLink::DropSession() {
  // Ends what is left of it, and that calls Opened for trees that were being opened.
  session_.reset();
  trees_.clear();
  view_ = 0;
}

}  // namespace farleaf::server::cluster
