#include "test/support/free_address.h"

#include <sys/socket.h>

#include <utility>
#include <vector>

#include "dsm/base/check.h"
#include "dsm/socket.h"

namespace farleaf {

std::string FreeAddress(const std::string& host) {
  // Bound and never used. Without the permission to reuse at first, so that what others have kept is not given.
  static std::vector<dsm::UniqueFd> kept;
  auto any = dsm::ResolveTcp(host + ":0");
  FARLEAF_CHECK(any.ok(), any.status());
  const auto* raw = reinterpret_cast<const sockaddr*>(&any->storage);
  dsm::UniqueFd fd(::socket(raw->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  FARLEAF_CHECK(::bind(fd.get(), raw, any->bytes) == 0, any->text);
  const int on = 1;
  FARLEAF_CHECK(::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0, any->text);
  auto address = dsm::LocalTcpAddress(fd.get());
  FARLEAF_CHECK(address.ok(), address.status());
  kept.push_back(std::move(fd));
  return *address;
}

}  // namespace farleaf
