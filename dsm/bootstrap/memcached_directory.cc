#include "dsm/bootstrap/memcached_directory.h"

#include <libmemcached/memcached.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace farleaf::dsm {

namespace {
constexpr int kRacesMax = 64;  // each means that somebody else made progress
}  // namespace

std::string EncodeAnnouncement(const ServerEndpoint& endpoint) {
  return endpoint.endpoint + " " + std::to_string(endpoint.region_bytes) + " " +
         std::to_string(endpoint.incarnation);
}

Result<ServerEndpoint> ParseAnnouncement(ServerId server, std::string_view value) {
  std::istringstream words{std::string(value)};
  ServerEndpoint endpoint;
  endpoint.server = server;
  std::string more;
  if (!(words >> endpoint.endpoint >> endpoint.region_bytes >> endpoint.incarnation) ||
      (words >> more)) {
    return Status::Corruption("the announcement of memory server " + std::to_string(server) +
                              " is '" + std::string(value.substr(0, 100)) + "'");
  }
  return endpoint;
}

MemcachedDirectory::MemcachedDirectory(std::string host, uint16_t port, std::string cluster,
                                       const MemcachedDirectoryOptions& options)
    : host_(std::move(host)), port_(port), cluster_(std::move(cluster)), options_(options) {}

MemcachedDirectory::~MemcachedDirectory() {
  if (connection_) memcached_free(connection_);
}

Status MemcachedDirectory::Connect() {
  if (connection_) return Status::Ok();
  connection_ = memcached_create(nullptr);
  if (!connection_) return Status::ResourceExhausted("no memory for a memcached connection");
  memcached_behavior_set(connection_, MEMCACHED_BEHAVIOR_SUPPORT_CAS, 1);
  memcached_behavior_set(connection_, MEMCACHED_BEHAVIOR_TCP_NODELAY, 1);
  memcached_behavior_set(connection_, MEMCACHED_BEHAVIOR_CONNECT_TIMEOUT, options_.timeout_ms);
  memcached_behavior_set(connection_, MEMCACHED_BEHAVIOR_POLL_TIMEOUT, options_.timeout_ms);
  const memcached_return_t code = memcached_server_add(connection_, host_.c_str(), port_);
  return code == MEMCACHED_SUCCESS ? Status::Ok() : Failure(code);
}

Status MemcachedDirectory::Failure(int code) {
  const std::string reason = memcached_strerror(connection_, static_cast<memcached_return_t>(code));
  // The next call connects afresh, instead of waiting for the library to trust the address again.
  memcached_free(connection_);
  connection_ = nullptr;
  return Status::Unavailable("memcached at " + host_ + ":" + std::to_string(port_) + ": " + reason);
}

Result<std::optional<MemcachedDirectory::Value>> MemcachedDirectory::Get(const std::string& key) {
  FARLEAF_RETURN_IF_ERROR(Connect());
  const char* keys[] = {key.data()};
  const size_t lengths[] = {key.size()};
  memcached_return_t code = memcached_mget(connection_, keys, lengths, 1);
  if (code != MEMCACHED_SUCCESS) return Failure(code);
  std::optional<Value> value;
  // To the end of the answer, or the connection would be out of step.
  while (memcached_result_st* result = memcached_fetch_result(connection_, nullptr, &code)) {
    value.emplace();
    value->text.assign(memcached_result_value(result), memcached_result_length(result));
    value->cas = memcached_result_cas(result);
    memcached_result_free(result);
  }
  if (code != MEMCACHED_END && code != MEMCACHED_NOTFOUND && code != MEMCACHED_SUCCESS) {
    return Failure(code);
  }
  return value;
}

Result<MemcachedDirectory::Stored> MemcachedDirectory::Store(const std::string& key,
                                                             const std::string& text,
                                                             const std::optional<Value>& old,
                                                             uint32_t expiry_s) {
  FARLEAF_RETURN_IF_ERROR(Connect());
  const memcached_return_t code =
      old ? memcached_cas(connection_, key.data(), key.size(), text.data(), text.size(), expiry_s,
                          0, old->cas)
          : memcached_add(connection_, key.data(), key.size(), text.data(), text.size(), expiry_s,
                          0);
  switch (code) {
    case MEMCACHED_SUCCESS:
    case MEMCACHED_STORED:
      return Stored::kDone;
    case MEMCACHED_NOTSTORED:
    case MEMCACHED_DATA_EXISTS:
    case MEMCACHED_NOTFOUND:
      return Stored::kRaced;
    default:
      return Failure(code);
  }
}

Status MemcachedDirectory::Publish(const ServerEndpoint& endpoint) {
  std::lock_guard lock(mutex_);
  FARLEAF_RETURN_IF_ERROR(PublishServer(endpoint));
  return PublishId(endpoint.server);
}

Status MemcachedDirectory::PublishServer(const ServerEndpoint& endpoint) {
  const std::string key = ServerKey(endpoint.server);
  for (int race = 0; race < kRacesMax; ++race) {
    auto old = Get(key);
    if (!old.ok()) return old.status();
    if (*old) {
      auto other = ParseAnnouncement(endpoint.server, (*old)->text);
      if (!other.ok() || other->incarnation != endpoint.incarnation) {
        return Status::AlreadyExists(
            "memory server id " + std::to_string(endpoint.server) + " of cluster '" + cluster_ +
            "' is taken by " + (other.ok() ? other->endpoint : (*old)->text) +
            "; choose another id, or wait " + std::to_string(options_.expiry_s) +
            " s if that server has died");
      }
    }
    auto stored = Store(key, EncodeAnnouncement(endpoint), *old, options_.expiry_s);
    if (!stored.ok()) return stored.status();
    if (*stored == Stored::kDone) return Status::Ok();
  }
  return Status::Unavailable("key " + key + " changes too fast");
}

Result<std::vector<ServerId>> MemcachedDirectory::ListIds() {
  auto index = Get(IndexKey());
  if (!index.ok()) return index.status();
  std::vector<ServerId> ids;
  if (!*index) return ids;
  std::istringstream words((*index)->text);
  for (ServerId id; words >> id;) ids.push_back(id);
  if (!words.eof()) return Status::Corruption("key " + IndexKey() + " holds no list of ids");
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Status MemcachedDirectory::PublishId(ServerId server) {
  for (int race = 0; race < kRacesMax; ++race) {
    auto index = Get(IndexKey());
    if (!index.ok()) return index.status();
    const std::string padded = " " + (*index ? (*index)->text : "") + " ";
    if (padded.find(" " + std::to_string(server) + " ") != std::string::npos) return Status::Ok();
    const std::string grown = (*index ? (*index)->text + " " : "") + std::to_string(server);
    auto stored = Store(IndexKey(), grown, *index, 0);
    if (!stored.ok()) return stored.status();
    if (*stored == Stored::kDone) return Status::Ok();
  }
  return Status::Unavailable("key " + IndexKey() + " changes too fast");
}

Result<std::vector<ServerEndpoint>> MemcachedDirectory::List() {
  std::lock_guard lock(mutex_);
  auto ids = ListIds();
  if (!ids.ok()) return ids.status();
  std::vector<ServerEndpoint> servers;
  for (const ServerId id : *ids) {
    auto value = Get(ServerKey(id));
    if (!value.ok()) return value.status();
    if (!*value) continue;  // expired or withdrawn
    auto endpoint = ParseAnnouncement(id, (*value)->text);
    if (!endpoint.ok()) return endpoint.status();
    servers.push_back(std::move(*endpoint));
  }
  return servers;
}

Status MemcachedDirectory::Withdraw(const ServerEndpoint& endpoint) {
  std::lock_guard lock(mutex_);
  const std::string key = ServerKey(endpoint.server);
  auto value = Get(key);
  if (!value.ok()) return value.status();
  if (!*value) return Status::Ok();
  auto published = ParseAnnouncement(endpoint.server, (*value)->text);
  if (!published.ok() || published->incarnation != endpoint.incarnation) return Status::Ok();
  const memcached_return_t code = memcached_delete(connection_, key.data(), key.size(), 0);
  if (code == MEMCACHED_SUCCESS || code == MEMCACHED_NOTFOUND) return Status::Ok();
  return Failure(code);
}

}  // namespace farleaf::dsm
