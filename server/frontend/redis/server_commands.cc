// PING, ECHO, SELECT, CLIENT, COMMAND, CONFIG, INFO, HELLO, AUTH, TIME: what needs no key.
#include <fmt/format.h>

#include <algorithm>

#include "server/frontend/redis/commands.h"
#include "server/frontend/redis/pattern.h"

namespace farleaf::server::redis {

using dsm::Task;

namespace {

constexpr std::string_view kNoPassword =
    "ERR AUTH <password> called without any password configured for the default user. Are you sure "
    "your configuration is correct?";
constexpr std::string_view kWrongPassword =
    "WRONGPASS invalid username-password pair or user is disabled.";

std::string WrongSubcommand(const Call& call) {
  return fmt::format(
      "ERR unknown subcommand or wrong number of arguments for '{}' of '{}'; it may not be "
      "supported "
      "by this server",
      LowerCase(call.at(1).substr(0, 64)), LowerCase(call.at(0)));
}

bool IsSubcommand(const Call& call, std::string_view word, size_t count) {
  return call.count() == count && IsWord(call.at(1), word);
}

std::string ClientLine(const Client& client) {
  return fmt::format("id={} name={} db=0 resp={}", client.id, client.name,
                     static_cast<int>(client.version));
}

/// Letters, digits and what is printed of ASCII, without spaces.
bool IsClientName(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return c >= '!' && c <= '~'; });
}

/// What is wrong with them, or nothing. `client` is told.
std::string_view CheckPassword(const Call& call, std::string_view user, std::string_view password,
                               Client* client) {
  const Authenticator& authenticator = call.environment.authenticator();
  if (!authenticator.required()) return kNoPassword;
  if (user == Authenticator::kUser && authenticator.Accepts(password)) {
    client->authenticated = true;
    return {};
  }
  ++call.client.attempts;
  return kWrongPassword;
}

void AppendCommand(const CommandSpec& command, Reply* reply) {
  reply->Array(6);
  reply->Bulk(command.name);
  reply->Integer(command.arity);
  reply->Array(1);
  reply->Simple(command.access == CommandSpec::Access::kRead    ? "readonly"
                : command.access == CommandSpec::Access::kWrite ? "write"
                                                                : "fast");
  reply->Integer(command.first_key);
  reply->Integer(command.last_key);
  reply->Integer(command.key_step);
}

}  // namespace

Task<Status> Ping(Call call) {
  if (call.count() > 2) {
    call.reply.Error("ERR wrong number of arguments for 'ping' command");
  } else if (call.count() == 2) {
    call.reply.Bulk(call.at(1));
  } else {
    call.reply.Simple("PONG");
  }
  co_return Status::Ok();
}

Task<Status> Echo(Call call) {
  call.reply.Bulk(call.at(1));
  co_return Status::Ok();
}

Task<Status> Select(Call call) {
  int64_t database = 0;
  if (!ParseInteger(call.at(1), &database)) {
    call.reply.Error(kNotAnInteger);
  } else if (database != 0) {
    call.reply.Error("ERR DB index is out of range: there is one database, 0");
  } else {
    call.reply.Ok();
  }
  co_return Status::Ok();
}

Task<Status> ClientCommand(Call call) {
  Client& client = call.client;
  if (IsSubcommand(call, "id", 2)) {
    call.reply.Integer(static_cast<int64_t>(client.id));
  } else if (IsSubcommand(call, "getname", 2)) {
    if (client.name.empty()) {
      call.reply.Null();
    } else {
      call.reply.Bulk(client.name);
    }
  } else if (IsSubcommand(call, "setname", 3)) {
    constexpr size_t kNameBytesMax = 256;
    if (!IsClientName(call.at(2)) || call.at(2).size() > kNameBytesMax) {
      call.reply.Error("ERR Client names cannot contain spaces, newlines or special characters.");
    } else {
      client.name = call.at(2);
      call.reply.Ok();
    }
  } else if (IsSubcommand(call, "setinfo", 4)) {
    call.reply.Ok();  // a library's name and version, which nobody asks for
  } else if (IsSubcommand(call, "info", 2) || IsSubcommand(call, "list", 2)) {
    call.reply.Text(ClientLine(client) + "\n");
  } else {
    call.reply.Error(WrongSubcommand(call));
  }
  co_return Status::Ok();
}

Task<Status> CommandCommand(Call call) {
  const auto all = Commands();
  if (call.count() == 1) {
    call.reply.Array(all.size());
    for (const CommandSpec& command : all) AppendCommand(command, &call.reply);
  } else if (IsSubcommand(call, "count", 2)) {
    call.reply.Integer(static_cast<int64_t>(all.size()));
  } else if (IsSubcommand(call, "list", 2)) {
    call.reply.Array(all.size());
    for (const CommandSpec& command : all) call.reply.Bulk(command.name);
  } else if (IsWord(call.at(1), "info")) {
    call.reply.Array(call.count() - 2);
    for (size_t i = 2; i < call.count(); ++i) {
      const CommandSpec* const command = FindCommand(call.at(i));
      if (command != nullptr) {
        AppendCommand(*command, &call.reply);
      } else {
        call.reply.NullArray();
      }
    }
  } else if (IsWord(call.at(1), "docs")) {
    call.reply.Map(0);  // there is server/README.md
  } else {
    call.reply.Error(WrongSubcommand(call));
  }
  co_return Status::Ok();
}

Task<Status> ConfigCommand(Call call) {
  if (!IsWord(call.at(1), "get") || call.count() < 3) {
    call.reply.Error(
        IsWord(call.at(1), "set")
            ? "ERR CONFIG SET is not supported by this server: options are given when it starts"
            : WrongSubcommand(call));
    co_return Status::Ok();
  }
  std::vector<std::pair<std::string, std::string>> known;
  for (auto& setting : call.environment.Settings()) {
    const bool wanted = std::any_of(call.arguments.begin() + 2, call.arguments.end(),
                                    [&](std::string_view pattern) {
                                      return MatchesPattern(LowerCase(pattern), setting.first);
                                    });
    if (wanted) known.push_back(std::move(setting));
  }
  call.reply.Map(known.size());
  for (const auto& [name, value] : known) {
    call.reply.Bulk(name);
    call.reply.Bulk(value);
  }
  co_return Status::Ok();
}

namespace {

/// Whether INFO's arguments ask for the section. Without any they do.
bool AsksFor(const Call& call, std::string_view section) {
  const auto names = call.arguments.subspan(1);
  return names.empty() || std::any_of(names.begin(), names.end(), [&](std::string_view name) {
           return IsWord(name, section) || IsWord(name, "all") || IsWord(name, "default") ||
                  IsWord(name, "everything");
         });
}

}  // namespace

// Each section once, in their order, however it is asked for; those that are unknown are left out.
Task<Status> Info(Call call) {
  std::string text;
  for (const std::string_view section : kInfoSections) {
    if (!AsksFor(call, section)) continue;
    if (!text.empty()) text.append("\r\n");
    call.environment.AppendInfo(section, &text);
  }
  call.reply.Text(text);
  co_return Status::Ok();
}

Task<Status> Hello(Call call) {
  Client next = call.client;
  size_t i = 1;
  if (call.count() > 1) {
    int64_t version = 0;
    if (!ParseInteger(call.at(i++), &version) || version < 2 || version > 3) {
      call.reply.Error("NOPROTO unsupported protocol version");
      co_return Status::Ok();
    }
    next.version = version == 3 ? RespVersion::k3 : RespVersion::k2;
  }
  while (i < call.count()) {
    std::string wrong;
    if (IsWord(call.at(i), "auth") && i + 2 < call.count()) {
      wrong = CheckPassword(call, call.at(i + 1), call.at(i + 2), &next);
      i += 3;
    } else if (IsWord(call.at(i), "setname") && i + 1 < call.count() &&
               IsClientName(call.at(i + 1))) {
      next.name = call.at(i + 1);
      i += 2;
    } else {
      wrong = "ERR Syntax error in HELLO option '" + std::string(call.at(i).substr(0, 64)) + "'";
    }
    if (!wrong.empty()) {
      call.reply.Error(wrong);
      co_return Status::Ok();
    }
  }
  if (!next.authenticated) {
    call.reply.Error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO "
        "<proto> "
        "AUTH <user> <pass> option can be used to authenticate the client and select the RESP "
        "protocol "
        "version at the same time");
    co_return Status::Ok();
  }
  call.client = next;
  Reply reply = call.reply.With(next.version);
  reply.Map(7);
  reply.Bulk("server");
  reply.Bulk("redis");
  reply.Bulk("version");
  reply.Bulk(kSpokenRelease);
  reply.Bulk("proto");
  reply.Integer(static_cast<int64_t>(next.version));
  reply.Bulk("id");
  reply.Integer(static_cast<int64_t>(next.id));
  reply.Bulk("mode");
  reply.Bulk("standalone");
  reply.Bulk("role");
  reply.Bulk("master");
  reply.Bulk("modules");
  reply.Array(0);
  co_return Status::Ok();
}

Task<Status> Auth(Call call) {
  if (call.count() > 3) {
    call.reply.Error(kSyntaxError);
    co_return Status::Ok();
  }
  const bool named = call.count() == 3;
  const std::string_view wrong = CheckPassword(call, named ? call.at(1) : Authenticator::kUser,
                                               call.arguments.back(), &call.client);
  if (wrong.empty()) {
    call.reply.Ok();
  } else {
    call.reply.Error(wrong);
  }
  co_return Status::Ok();
}

Task<Status> Time(Call call) {
  const uint64_t now_ms = call.store().NowMs();
  call.reply.Array(2);
  call.reply.BulkNumber(now_ms / 1'000);
  call.reply.BulkNumber(now_ms % 1'000 * 1'000);
  co_return Status::Ok();
}

// Of all protocols' requests: their commands and keys are what is kept of their arguments.
Task<Status> SlowLogCommand(Call call) {
  SlowLog* const log = call.environment.slow_log();
  const auto entries = log != nullptr ? log->Entries() : std::vector<SlowRequest>();
  int64_t count = 10;
  if (IsWord(call.at(1), "len") && call.count() == 2) {
    call.reply.Integer(static_cast<int64_t>(entries.size()));
  } else if (IsWord(call.at(1), "reset") && call.count() == 2) {
    if (log != nullptr) log->Clear();
    call.reply.Ok();
  } else if (!IsWord(call.at(1), "get") || call.count() > 3) {
    call.reply.Error("ERR SLOWLOG takes GET [count], LEN and RESET");
  } else if (call.count() == 3 && (!ParseInteger(call.at(2), &count) || count < -1)) {
    call.reply.Error("ERR count should be greater than or equal to -1");
  } else {
    const size_t wanted = count < 0 ? entries.size() : static_cast<size_t>(count);
    call.reply.Array(std::min(wanted, entries.size()));
    for (const SlowRequest& slow : std::span(entries).first(std::min(wanted, entries.size()))) {
      call.reply.Array(6);
      call.reply.Integer(static_cast<int64_t>(slow.id));
      call.reply.Integer(static_cast<int64_t>(slow.time_ms / 1'000));
      call.reply.Integer(static_cast<int64_t>(slow.duration_us));
      call.reply.Array(2);
      call.reply.Bulk(slow.command);
      call.reply.Bulk(slow.key);
      call.reply.Bulk(slow.client);
      call.reply.Bulk({});
    }
  }
  co_return Status::Ok();
}

}  // namespace farleaf::server::redis
