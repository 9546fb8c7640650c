// Redis' protocol and memcached's, by the same code: what differs is how a request and its answer look.
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <vector>

#include "benchmark/rivals/conversation.h"
#include "client/internal/socket.h"

namespace farleaf::rivals {

namespace {

using client::internal::ErrnoText;
using client::internal::Fd;

constexpr int kAnswerWaitSeconds = 20;

/// How an answer to a request for a key looks: so many bytes, of which those at the front and the end are known.
struct Answer {
  std::string head;       // up to and with the first bytes of the value, if there is one
  size_t bytes_more = 0;  // behind the head
};

struct Form {
  Protocol protocol;

  void AppendRequest(RequestKind kind, uint64_t number, char letter, std::string* out) const {
    const bool get = kind == RequestKind::kGet;
    if (protocol == Protocol::kRedis) {
      out->append(get ? "*2\r\n$3\r\nGET\r\n$16\r\n" : "*3\r\n$3\r\nSET\r\n$16\r\n");
      AppendKey(number, out);
      if (!get) AppendValue(number, letter, &out->append("\r\n$100\r\n"));
    } else {
      out->append(get ? "get " : "set ");
      AppendKey(number, out);
      if (!get) AppendValue(number, letter, &out->append(" 0 0 100\r\n"));
    }
    out->append("\r\n");
  }
  void Expect(RequestKind kind, uint64_t number, Answer* answer) const {
    answer->head.clear();
    answer->bytes_more = 0;
    const bool redis = protocol == Protocol::kRedis;
    if (kind == RequestKind::kSet) {
      answer->head = redis ? "+OK\r\n" : "STORED\r\n";
      return;
    }
    if (redis) {
      answer->head = "$100\r\n";
    } else {
      answer->head = "VALUE ";
      AppendKey(number, &answer->head);
      answer->head += " 0 100\r\n";
    }
    AppendKey(number, &answer->head);
    const std::string_view tail = redis ? "\r\n" : "\r\nEND\r\n";
    answer->bytes_more = kValueBytes - kKeyBytes + tail.size();
  }
};

class TextConversation final : public Conversation {
 public:
  TextConversation(Protocol protocol, Fd socket) : form_{protocol}, socket_(std::move(socket)) {}

  Status Run(const Work& work, KeySequence& keys, Histogram* latency_ns) override {
    letter_ = letter_ == 'z' ? 'a' : static_cast<char>(letter_ + 1);
    for (uint64_t done = 0; done < work.requests; done += work.depth) {
      out_.clear();
      numbers_.clear();
      for (size_t i = 0; i < work.depth; ++i) {
        numbers_.push_back(keys.Next());
        form_.AppendRequest(work.kind, numbers_.back(), letter_, &out_);
      }
      FARLEAF_RETURN_IF_ERROR(RunOneBatch(work.kind, latency_ns));
    }
    return Status::Ok();
  }

 private:
  Status RunOneBatch(RequestKind kind, Histogram* latency_ns) {
    const uint64_t begin_ns = clock_.NowNs();
    for (std::string_view rest = out_; !rest.empty();) {
      const ssize_t n = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n < 0) return Status::IoError("send: " + ErrnoText(errno));
      rest.remove_prefix(static_cast<size_t>(n));
    }
    size_t answered = 0, begin = 0, end = 0;
    while (answered < numbers_.size()) {
      if (begin == end) {
        begin = end = 0;
      } else if (end == in_.size()) {
        std::copy(in_.begin() + static_cast<std::ptrdiff_t>(begin), in_.end(), in_.begin());
        end -= begin;
        begin = 0;
      }
      const ssize_t n = ::recv(socket_.get(), in_.data() + end, in_.size() - end, 0);
      if (n <= 0) {
        return Status::IoError(n == 0 ? "the server has closed the connection"
                                      : "no answer: " + ErrnoText(errno));
      }
      end += static_cast<size_t>(n);
      const uint64_t waited_ns = clock_.NowNs() - begin_ns;
      while (answered < numbers_.size()) {
        form_.Expect(kind, numbers_[answered], &answer_);
        const std::string_view text(in_.data() + begin, end - begin);
        const size_t known = std::min(text.size(), answer_.head.size());
        if (text.substr(0, known) != std::string_view(answer_.head).substr(0, known)) {
          return Status::Corruption("expected \"" + answer_.head + "\", got \"" +
                                    std::string(text.substr(0, 80)) + "\"");
        }
        if (text.size() < answer_.head.size() + answer_.bytes_more) break;
        begin += answer_.head.size() + answer_.bytes_more;
        ++answered;
        latency_ns->Record(waited_ns);
      }
    }
    if (begin != end) return Status::Corruption("bytes behind the last answer");
    return Status::Ok();
  }

  const MonotonicClock clock_;
  const Form form_;
  const Fd socket_;
  char letter_ = 'a';
  std::string out_;
  std::vector<uint64_t> numbers_;
  Answer answer_;
  std::array<char, 256 << 10> in_;
};

}  // namespace

Result<std::unique_ptr<Conversation>> ConnectText(Protocol protocol, std::string_view address) {
  auto endpoint = client::ParseEndpoint("farleaf://" + std::string(address));
  if (!endpoint.ok()) return endpoint.status();
  const auto addresses = client::internal::Resolve(*endpoint);
  if (!addresses.ok()) return addresses.status();
  auto dialed = client::internal::Dial(addresses->front());
  if (!dialed.ok()) return dialed.status();
  // From here on it blocks: a client of the simplest kind, which takes nothing from the server's processor.
  pollfd waited{dialed->get(), POLLOUT, 0};
  ::poll(&waited, 1, kAnswerWaitSeconds * 1'000);
  if (const int error = client::internal::PendingError(*dialed); error != 0) {
    return Status::Unavailable(std::string(address) + ": " + ErrnoText(error));
  }
  ::fcntl(dialed->get(), F_SETFL, ::fcntl(dialed->get(), F_GETFL) & ~O_NONBLOCK);
  const timeval wait{kAnswerWaitSeconds, 0};
  ::setsockopt(dialed->get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
  return std::unique_ptr<Conversation>(
      std::make_unique<TextConversation>(protocol, std::move(*dialed)));
}

}  // namespace farleaf::rivals
