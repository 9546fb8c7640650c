#include "server/metrics/http_listener.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "client/endpoint.h"
#include "dsm/base/log.h"

namespace farleaf::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr auto kPatience = std::chrono::seconds(10);
constexpr size_t kConnectionsMax = 64;
constexpr uint32_t kHeadBytesMax = 8 << 10;

/// One connection: a request after the other, until either side has enough. It keeps itself alive by its handlers.
class Visit : public std::enable_shared_from_this<Visit> {
 public:
  Visit(tcp::socket socket, const HttpListener::Pages* pages, size_t* open)
      : stream_(std::move(socket)), pages_(pages), open_(open) {
    ++*open_;
  }
  ~Visit() { --*open_; }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kHeadBytesMax);
    parser_->body_limit(0);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, *parser_,
                     [self = shared_from_this()](ErrorCode error, size_t) {
                       if (!error) return self->Answer();
                       if (error == http::error::header_limit) self->AnswerTooLong();
                     });
  }

 private:
  void Answer() {
    const auto& request = parser_->get();
    HttpPage page;
    const std::string_view target(request.target().data(), request.target().size());
    const auto found = pages_->find(target.substr(0, target.find('?')));
    const bool head = request.method() == http::verb::head;
    if (!head && request.method() != http::verb::get) {
      page = {405, page.content_type, "only GET and HEAD are answered here\n"};
    } else if (found != pages_->end()) {
      page = found->second();
    } else {
      page = {404, page.content_type, "here are"};
      for (const auto& [path, make] : *pages_) page.body += " " + path;
      page.body += "\n";
    }
    Send(std::move(page), request.keep_alive(), head);
  }
  void AnswerTooLong() {
    Send({431, "text/plain", "the request's head is too long\n"}, false, false);
  }

  void Send(HttpPage page, bool keep_alive, bool head) {
    answer_ = {};
    answer_.result(page.status);
    answer_.version(11);
    answer_.set(http::field::content_type, page.content_type);
    answer_.keep_alive(keep_alive);
    answer_.content_length(page.body.size());
    if (page.status == 405) answer_.set(http::field::allow, "GET, HEAD");
    if (!head) answer_.body() = std::move(page.body);
    stream_.expires_after(kPatience);
    http::async_write(stream_, answer_, [self = shared_from_this()](ErrorCode error, size_t) {
      if (!error && self->answer_.keep_alive()) return self->Read();
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, error);
    });
  }

  beast::tcp_stream stream_;
  const HttpListener::Pages* const pages_;
  size_t* const open_;
  beast::flat_buffer buffer_{kHeadBytesMax * 2};
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> answer_;
};

}  // namespace

struct HttpListener::Running {
  Pages pages;
  size_t open = 0;  // outlives the visits, which are destroyed with the context
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  std::thread thread;

  void Accept() {
    acceptor.async_accept([this](ErrorCode error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (!error && open < kConnectionsMax) {
        std::make_shared<Visit>(std::move(socket), &pages, &open)->Read();
      }
      // No descriptors are left, say: not again at once.
      if (error) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      Accept();
    });
  }
};

HttpListener::HttpListener(std::unique_ptr<Running> running) : running_(std::move(running)) {}

Result<std::unique_ptr<HttpListener>> HttpListener::Start(const std::string& listen, Pages pages) {
  auto endpoint = client::ParseHostPort(listen);
  if (!endpoint.ok()) return endpoint.status();
  auto running = std::make_unique<Running>();
  running->pages = std::move(pages);
  ErrorCode error;
  const auto resolved = tcp::resolver(running->context)
                            .resolve(endpoint->host, std::to_string(endpoint->port), error);
  if (error) return Status::InvalidArgument("host \"" + endpoint->host + "\": " + error.message());
  const tcp::endpoint address = resolved.begin()->endpoint();
  tcp::acceptor& acceptor = running->acceptor;
  acceptor.open(address.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(address, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    const std::string text = "cannot listen on " + listen + ": " + error.message();
    return error == asio::error::address_in_use ? Status::AlreadyExists(text)
                                                : Status::InvalidArgument(text);
  }
  endpoint->port = acceptor.local_endpoint(error).port();
  std::unique_ptr<HttpListener> listener(new HttpListener(std::move(running)));
  const std::string tcp_url = endpoint->ToString();
  listener->url_ = "http" + tcp_url.substr(tcp_url.find(':'));
  Running* const started = listener->running_.get();
  started->Accept();
  started->thread = std::thread([started] { started->context.run(); });
  return listener;
}

HttpListener::~HttpListener() {
  running_->context.stop();
  running_->thread.join();
}

}  // namespace farleaf::server
