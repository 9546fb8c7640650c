#include "server/replication/channel_format.h"

#include <cstring>

namespace farleaf::server::replication {

uint32_t HeadCrc(const ChannelHeader& header, std::string_view head) {
  const auto bytes = std::as_bytes(std::span(&header, 1)).subspan(kCrcFrom);
  return Crc32c(AsBytes(head), Crc32c(bytes));
}

ChannelHeader HeaderOf(const ChannelPlace& place, const Message& message) {
  ChannelHeader header = {};
  header.word = RendezvousWord(place.token, place.sequence);
  header.kind = message.kind;
  header.payload_bytes = static_cast<uint32_t>(message.payload.size());
  header.payload_crc = Crc32c(message.payload);
  header.token = place.token;
  header.sequence = place.sequence;
  header.arguments = message.arguments;
  return header;
}

ChannelHeader HeaderOf(const ChannelPlace& place, const Reply& reply, ReplyOutcome outcome) {
  ChannelHeader header = {};
  header.word = RendezvousWord(place.token, place.sequence);
  header.kind = static_cast<uint8_t>(reply.code);
  header.outcome = static_cast<uint8_t>(outcome);
  header.payload_bytes = static_cast<uint32_t>(reply.payload.size());
  header.payload_crc = Crc32c(AsBytes(reply.payload));
  header.token = place.token;
  header.sequence = place.sequence;
  header.arguments = reply.values;
  return header;
}

std::string EncodeHead(ChannelHeader header, std::string_view head) {
  header.head_bytes = static_cast<uint16_t>(head.size());
  header.crc = HeadCrc(header, head);
  std::string encoded(RoundUp(kHeaderBytes + head.size(), 8), '\0');
  std::memcpy(encoded.data(), &header, kHeaderBytes);
  head.copy(encoded.data() + kHeaderBytes, head.size());
  return encoded;
}

Status CheckPlace(const ChannelHeader& header, const ChannelPlace& place,
                  const HeadLimits& limits) {
  if (header.token != place.token || header.sequence != place.sequence) {
    return Status::Corruption("number " + std::to_string(header.sequence) +
                              " of another channel, or place, stands for " +
                              std::to_string(place.sequence));
  }
  if (header.head_bytes > limits.head_bytes_max ||
      header.payload_bytes > limits.payload_bytes_max) {
    return Status::Corruption("number " + std::to_string(place.sequence) + " says it has " +
                              std::to_string(header.head_bytes) + " and " +
                              std::to_string(header.payload_bytes) + " bytes");
  }
  return Status::Ok();
}

Status CheckHead(const ChannelHeader& header, std::string_view head) {
  if (header.crc == HeadCrc(header, head)) return Status::Ok();
  return Status::Corruption("number " + std::to_string(header.sequence) +
                            " fails its header's checksum");
}

Status CheckPayload(const ChannelHeader& header, std::span<const std::byte> payload) {
  if (header.payload_crc == Crc32c(payload)) return Status::Ok();
  return Status::Corruption("number " + std::to_string(header.sequence) +
                            " fails its payload's checksum");
}

}  // namespace farleaf::server::replication
