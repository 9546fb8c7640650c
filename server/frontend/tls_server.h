// TlsServer: a server's certificate and key, with which connections become TLS connections (1.2 and 1.3). It can be
// given new ones while it serves: connections from then on get those.
//
// Thread rule: any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "client/internal/socket.h"
#include "client/internal/tls_stream.h"
#include "dsm/base/result.h"

namespace farleaf::server {

struct TlsServerOptions {
  std::string certificate_file;  ///< PEM, the server's first, then those up to the authority
  std::string key_file;          ///< PEM; refused if everybody may read it
  std::string
      client_ca_file;  ///< who has to have signed clients' certificates; empty: they need none
};

class TlsServer {
 public:
  using Stream = client::internal::TlsStream;

  /// InvalidArgument, naming the file, if one cannot be read or is not what it should be.
  static Result<std::unique_ptr<TlsServer>> Load(TlsServerOptions options);
  /// Reads the files again; after a failure what it has stays.
  Status Reload();
  std::unique_ptr<Stream> Accept(int fd) const;

 private:
  using Context = std::shared_ptr<SSL_CTX>;
  explicit TlsServer(TlsServerOptions options)
      : options_(std::move(options)), method_(client::internal::NewSocketBioMethod()) {}

  const TlsServerOptions options_;
  const std::shared_ptr<BIO_METHOD> method_;
  mutable std::mutex mutex_;  // guards context_
  Context context_;
};

}  // namespace farleaf::server
