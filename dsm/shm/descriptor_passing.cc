#include "dsm/shm/descriptor_passing.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

namespace farleaf::dsm {

Status SendWithDescriptor(int socket, std::string_view message, int descriptor) {
  iovec vector{const_cast<char*>(message.data()), message.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof(int));
  }
  const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(message.size())) return OsError("cannot send on a Unix socket");
  return Status::Ok();
}

Result<ReceivedBytes> ReceiveWithDescriptor(int socket, std::span<std::byte> into) {
  iovec vector{into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr header{};
  header.msg_iov = &vector;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ReceivedBytes received;
  const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  if (got < 0) {
    if (errno != EAGAIN && errno != EINTR) return OsError("cannot receive on a Unix socket");
    received.would_block = true;
    return received;
  }
  received.count = static_cast<size_t>(got);
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    if (c->cmsg_len != CMSG_LEN(sizeof(int))) continue;
    int descriptor;
    std::memcpy(&descriptor, CMSG_DATA(c), sizeof(int));
    received.descriptor = UniqueFd(descriptor);
  }
  return received;
}

}  // namespace farleaf::dsm
