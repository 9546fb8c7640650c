// One GET over HTTP, as those who watch a server do it.
//
// Thread rule: any thread.
#pragma once

#include <string>

#include "test/support/text_client.h"

namespace farleaf::test {

struct HttpAnswer {
  int status = 0;
  std::string head;  ///< with the status line
  std::string body;
};

/// `url`: http://HOST:PORT. Status 0: there was no answer.
inline HttpAnswer HttpSend(const std::string& url, const std::string& request) {
  TextClient client(url);
  client.Send(request);
  const std::string all = client.ReceiveAll();
  HttpAnswer answer;
  const size_t end = all.find("\r\n\r\n");
  if (end == std::string::npos || !all.starts_with("HTTP/1.1 ")) return answer;
  answer.status = std::stoi(all.substr(9, 3));
  answer.head = all.substr(0, end);
  answer.body = all.substr(end + 4);
  return answer;
}

inline HttpAnswer HttpGet(const std::string& url, const std::string& path) {
  return HttpSend(url, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

}  // namespace farleaf::test
