// Nobody listens at port 1: the error names the server. That is all this needs to show.
#include <iostream>

#include "client/client.h"

int main() {
  const auto client = farleaf::client::Client::Connect("farleaf://127.0.0.1:1");
  std::cout << client.status() << '\n';
  const bool named = client.status().message().find("127.0.0.1:1") != std::string_view::npos;
  return !client.ok() && named ? 0 : 1;
}
