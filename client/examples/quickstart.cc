// Stores two accounts, reads one, lists both. Usage: quickstart farleaf://HOST:PORT
#include <iostream>

#include "client/client.h"

using namespace farleaf::client;

int main(int argc, char** argv) {
  auto client = Client::Connect(argc > 1 ? argv[1] : "farleaf://127.0.0.1:7400");
  if (!client.ok()) return std::cerr << client.status() << '\n', 1;

  (void)(*client)->CreateTree({.name = "accounts"});  // it may be there from the last run
  auto accounts = (*client)->OpenTree("accounts");
  if (!accounts.ok()) return std::cerr << accounts.status() << '\n', 1;

  auto alice = accounts->PutAsync("alice", "100");  // both are on their way together
  auto bob = accounts->PutAsync("bob", "50");
  if (!alice.get().ok() || !bob.get().ok()) return 1;

  auto balance = accounts->Get("alice");
  if (balance.ok() && *balance) std::cout << "alice has " << **balance << '\n';

  auto rows = accounts->Scan({.start = "a", .end = "c"});
  if (!rows.ok()) return std::cerr << rows.status() << '\n', 1;
  for (const auto& [key, value] : *rows) std::cout << key << " = " << value << '\n';
}
