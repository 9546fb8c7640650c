// TLS for clients: an optional part of the library, which needs OpenSSL (link farleaf::client_tls; the rest of the
// client needs threads only).
//
//   farleaf::client::Options options;
//   auto tls = farleaf::client::NewTls({.ca_file = "ca.pem"});
//   options.transport = *tls;
//   auto client = farleaf::client::Client::Connect("farleaf://store.example:7400", options);
//
// Thread rule: NewTls from any thread; what it returns may be shared by clients.
#pragma once

#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "client/internal/tls_stream.h"
#include "client/secure_transport.h"
#include "dsm/base/result.h"

namespace farleaf::client {

struct TlsOptions {
  std::string
      ca_file;  ///< who has to have signed the server's certificate; empty: the machine's authorities
  std::string certificate_file, key_file;  ///< of this client, for servers that want one
  /// The name that has to be in the server's certificate; empty: the host that is connected to.
  std::string server_name;
  bool verify = true;  ///< false: any certificate will do, which protects from eavesdroppers alone
};

namespace internal {

class TlsChannel final : public SecureChannel {
 public:
  TlsChannel(SSL_CTX* context, std::shared_ptr<BIO_METHOD> method, int fd)
      : stream_(context, std::move(method), fd, TlsStream::Side::kClient) {}
  TlsStream& stream() { return stream_; }

  Transfer Send(std::string_view bytes) override { return Of(stream_.Send(bytes)); }
  Transfer Receive(std::span<std::byte> space) override { return Of(stream_.Receive(space)); }
  bool send_waits_for_read() const override { return stream_.send_waits_for_read(); }
  bool receive_waits_for_write() const override { return stream_.receive_waits_for_write(); }
  Status failure() const override { return stream_.failure(); }

 private:
  static Transfer Of(TlsStream::Outcome outcome) {
    using Kind = TlsStream::Outcome::Kind;
    switch (outcome.kind) {
      case Kind::kBytes:
        return {Transfer::Kind::kBytes, outcome.bytes};
      case Kind::kWait:
        return {Transfer::Kind::kWait, 0};
      case Kind::kEnded:
        return {Transfer::Kind::kEnded, 0};
      case Kind::kFailed:
        break;
    }
    return {Transfer::Kind::kFailed, 0};
  }

  TlsStream stream_;
};

class TlsTransport final : public SecureTransport {
 public:
  TlsTransport(SslContext context, TlsOptions options)
      : context_(std::move(context)), method_(NewSocketBioMethod()), options_(std::move(options)) {}

  std::unique_ptr<SecureChannel> Open(int fd, const std::string& host) const override {
    auto channel = std::make_unique<TlsChannel>(context_.get(), method_, fd);
    const std::string& name = options_.server_name.empty() ? host : options_.server_name;
    SSL* const ssl = channel->stream().ssl();
    // An address is looked for among the certificate's addresses, a name among its names.
    X509_VERIFY_PARAM* const wanted = SSL_get0_param(ssl);
    if (!name.empty() && X509_VERIFY_PARAM_set1_ip_asc(wanted, name.c_str()) != 1) {
      SSL_set_tlsext_host_name(ssl, name.c_str());
      SSL_set1_host(ssl, name.c_str());
    }
    return channel;
  }

 private:
  const SslContext context_;
  const std::shared_ptr<BIO_METHOD> method_;
  const TlsOptions options_;
};

}  // namespace internal

/// InvalidArgument: a file cannot be read, or is not what it should be.
inline Result<std::shared_ptr<const SecureTransport>> NewTls(TlsOptions options) {
  internal::SslContext context(SSL_CTX_new(TLS_client_method()));
  FARLEAF_CHECK(context != nullptr);
  SSL_CTX* const raw = context.get();
  const auto refuse = [](const std::string& what) {
    return Status::InvalidArgument(what + ": " + internal::SslErrorText());
  };
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_verify(raw, options.verify ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (!options.ca_file.empty()) {
    if (SSL_CTX_load_verify_file(raw, options.ca_file.c_str()) != 1) return refuse(options.ca_file);
  } else if (SSL_CTX_set_default_verify_paths(raw) != 1) {
    return refuse("the machine's certificate authorities");
  }
  if (!options.certificate_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(raw, options.certificate_file.c_str()) != 1) {
      return refuse(options.certificate_file);
    }
    if (SSL_CTX_use_PrivateKey_file(raw, options.key_file.c_str(), SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(raw) != 1) {
      return refuse("key " + options.key_file);
    }
  }
  return std::shared_ptr<const SecureTransport>(
      std::make_shared<internal::TlsTransport>(std::move(context), std::move(options)));
}

}  // namespace farleaf::client
