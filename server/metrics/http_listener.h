// HttpListener: pages of text over HTTP/1.1 for those who watch a server: GET and HEAD of a few fixed paths.
//
// Invariants: a peer is cut off that takes longer than kPatience for a request, or to take its answer; there are
// at most kConnectionsMax of them; a request's head has at most kHeadBytesMax bytes, and no body is read.
// Thread rule: Start and the destructor by one thread. It has a thread of its own, which makes the pages: what a
// page costs delays other pages, and no requests of clients.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "dsm/base/result.h"

namespace farleaf::server {

struct HttpPage {
  unsigned status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpListener {
 public:
  using MakePage = std::function<HttpPage()>;
  using Pages = std::map<std::string, MakePage, std::less<>>;  ///< by path

  /// `listen`: HOST:PORT; port 0 takes any free one. AlreadyExists: it is taken; InvalidArgument: it cannot be
  /// listened on. What the pages use outlives the listener.
  static Result<std::unique_ptr<HttpListener>> Start(const std::string& listen, Pages pages);
  /// Closes all connections.
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;

  /// http://HOST:PORT
  const std::string& url() const { return url_; }

 private:
  struct Running;
  explicit HttpListener(std::unique_ptr<Running> running);

  std::unique_ptr<Running> running_;
  std::string url_;
};

}  // namespace farleaf::server
