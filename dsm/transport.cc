#include "dsm/transport.h"

#include "dsm/directory.h"

namespace farleaf::dsm {

Status Fabric::Add(const ServerEndpoint& endpoint) {
  return Status::Unimplemented("memory server " + std::to_string(endpoint.server) +
                               " cannot be added: the " + std::string(name()) +
                               " fabric keeps the memory servers that it was made with");
}

void Fabric::Remove(ServerId) {}

}  // namespace farleaf::dsm
