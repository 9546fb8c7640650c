#include "server/frontend/tls_server.h"

#include <sys/stat.h>

namespace farleaf::server {

using client::internal::SslContext;
using client::internal::SslErrorText;

namespace {

Status CheckKeyFile(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) {
    return Status::InvalidArgument("tls_key " + path + ": " + client::internal::ErrnoText(errno));
  }
  if ((about.st_mode & (S_IROTH | S_IWOTH)) == 0) return Status::Ok();
  return Status::InvalidArgument(
      "tls_key " + path + ": everybody may read or write it; take that back with chmod o-rw");
}

Result<SslContext> NewContext(const TlsServerOptions& options) {
  FARLEAF_RETURN_IF_ERROR(CheckKeyFile(options.key_file));
  SslContext context(SSL_CTX_new(TLS_server_method()));
  FARLEAF_CHECK(context != nullptr);
  SSL_CTX* const raw = context.get();
  const auto refuse = [](const std::string& what) {
    return Status::InvalidArgument(what + ": " + SslErrorText());
  };
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_CIPHER_SERVER_PREFERENCE);
  if (SSL_CTX_use_certificate_chain_file(raw, options.certificate_file.c_str()) != 1) {
    return refuse("tls_certificate " + options.certificate_file);
  }
  if (SSL_CTX_use_PrivateKey_file(raw, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(raw) != 1) {
    return refuse("tls_key " + options.key_file);
  }
  if (!options.client_ca_file.empty()) {
    const char* const ca = options.client_ca_file.c_str();
    STACK_OF(X509_NAME)* const names = SSL_load_client_CA_file(ca);
    if (names == nullptr || SSL_CTX_load_verify_file(raw, ca) != 1) {
      return refuse("tls_client_ca " + options.client_ca_file);
    }
    SSL_CTX_set_client_CA_list(raw, names);
    SSL_CTX_set_verify(raw, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
    // Sessions are resumed only where clients were verified for the same purpose.
    constexpr unsigned char kSessions[] = "farleaf";
    SSL_CTX_set_session_id_context(raw, kSessions, sizeof kSessions - 1);
  }
  return context;
}

}  // namespace

Result<std::unique_ptr<TlsServer>> TlsServer::Load(TlsServerOptions options) {
  std::unique_ptr<TlsServer> server(new TlsServer(std::move(options)));
  FARLEAF_RETURN_IF_ERROR(server->Reload());
  return server;
}

Status TlsServer::Reload() {
  auto fresh = NewContext(options_);
  if (!fresh.ok()) return fresh.status();
  Context context(std::move(*fresh));
  std::lock_guard lock(mutex_);
  context_ = std::move(context);
  return Status::Ok();
}

std::unique_ptr<TlsServer::Stream> TlsServer::Accept(int fd) const {
  Context context;
  {
    std::lock_guard lock(mutex_);
    context = context_;
  }
  // The stream keeps a reference of its own to the context.
  return std::make_unique<Stream>(context.get(), method_, fd, Stream::Side::kServer);
}

}  // namespace farleaf::server
