#include "index/storage/sim_device.h"

#include <algorithm>
#include <cstring>

#include "dsm/base/check.h"

namespace farleaf::index::storage {

void SimDevice::Begin(SimIo io) {
  ++ios_;
  if (faults_.stop_at != 0 && ios_ >= faults_.stop_at) faults_.stopped = true;
  io.fails = faults_.fail_at != 0 && ios_ == faults_.fail_at;
  if (io.kind == SimIo::Kind::kTransfer && io.io->kind == IoKind::kRead) {
    io.fails |= faults_.unreadable.contains(io.io->segment);
  }
  const uint64_t span_ns = options_.io_ns_max - options_.io_ns_min + 1;
  const uint64_t takes_ns = (options_.io_ns_min + random_.Below(span_ns)) * faults_.slowness;
  const uint64_t due_ns = io.group->worker().clock().NowNs() + takes_ns;
  io.group->Add();
  under_way_.emplace(Place{due_ns, ios_}, std::move(io));
}

// ---- The workers' side

void SimDevice::Reap(const dsm::Worker& worker, std::vector<std::coroutine_handle<>>* ready) {
  if (faults_.stuck || faults_.stopped || under_way_.empty()) return;
  const uint64_t now_ns = worker.clock().NowNs();
  for (auto at = under_way_.begin(); at != under_way_.end() && at->first.first <= now_ns;) {
    if (&at->second.group->worker() != &worker) {
      ++at;
      continue;
    }
    End(at->second);
    const auto waiter = at->second.group->Done();
    at = under_way_.erase(at);
    if (waiter) ready->push_back(waiter);
  }
}

bool SimDevice::busy(const dsm::Worker& worker) const {
  return std::ranges::any_of(under_way_,
                             [&](const auto& io) { return &io.second.group->worker() == &worker; });
}

uint64_t SimDevice::NextDueNs(const dsm::Worker& worker) const {
  if (faults_.stuck || faults_.stopped) return UINT64_MAX;
  for (const auto& [place, io] : under_way_) {
    if (&io.group->worker() == &worker) return place.first;
  }
  return UINT64_MAX;
}

void SimDevice::MoveClock(const dsm::Worker& worker, uint64_t timeout_ns) {
  if (options_.clock == nullptr) return;
  const uint64_t now_ns = options_.clock->NowNs();
  const uint64_t due_ns = std::min(NextDueNs(worker), now_ns + timeout_ns);
  if (due_ns > now_ns) options_.clock->AdvanceNs(due_ns - now_ns);
}

// ---- What I/Os do

void SimDevice::End(SimIo& io) {
  *io.status = Status::Ok();
  switch (io.kind) {
    case SimIo::Kind::kTransfer:
      return EndTransfer(io);
    case SimIo::Kind::kCreate:
      return EndCreate(io);
    case SimIo::Kind::kReadFile:
    case SimIo::Kind::kReplaceFile:
    case SimIo::Kind::kAppendFile:
      return EndFile(io);
  }
}

Status SimDevice::Failure(const SimIo& io, std::string_view why) const {
  std::string what = "file sim/" + io.name;
  if (io.kind == SimIo::Kind::kCreate) what = "making " + NameOf(io.id);
  if (io.kind == SimIo::Kind::kTransfer) {
    what = NameOf(io.io->segment) + " at " + std::to_string(io.io->offset);
  }
  return Status::IoError(what + ": " + std::string(why));
}

void SimDevice::EndTransfer(SimIo& io) {
  const std::span<std::byte> bytes = io.io->bytes;
  if (io.fails) {
    *io.status = Failure(io, "Input/output error");
    if (io.io->kind == IoKind::kSync) io.segment->SyncFailed(changes_);
    if (io.io->kind == IoKind::kWrite) LandInPart(io);
    return;
  }
  switch (io.io->kind) {
    case IoKind::kRead:
      io.segment->Read(io.io->offset, bytes);
      ++counts_.reads;
      counts_.bytes_read += bytes.size();
      return;
    case IoKind::kWrite:
      // A device takes the bytes some time before it is done: those that changed meanwhile are old or new.
      for (size_t at = 0; at < bytes.size(); at += SimSegment::kSectorBytes) {
        if (random_.OneIn(2)) {
          std::memcpy(io.written.data() + at, bytes.data() + at, SimSegment::kSectorBytes);
        }
      }
      io.segment->Write(++changes_, io.io->offset, io.written, random_);
      ++counts_.writes;
      counts_.bytes_written += bytes.size();
      return;
    case IoKind::kSync:
      io.segment->Synced(io.synced);
      ++counts_.syncs;
      return;
  }
}

void SimDevice::LandInPart(SimIo& io) {
  const std::span<const std::byte> bytes = io.written;
  for (uint32_t at = 0; at < bytes.size(); at += kBlockBytes) {
    if (random_.OneIn(2)) {
      io.segment->Write(++changes_, io.io->offset + at, bytes.subspan(at, kBlockBytes), random_);
    }
  }
}

std::shared_ptr<SimSegment> SimDevice::NewSegment() {
  if (!removed_.empty() && random_.OneIn(2)) {
    return std::make_shared<SimSegment>(removed_.back().second->Recycled());
  }
  return std::make_shared<SimSegment>(random_.Next());
}

bool SimDevice::HasRoom() const {
  const uint64_t used = image_.segments.size() + image_.spare + reserve_.held();
  return faults_.segments_max == 0 || used < faults_.segments_max;
}

Status SimDevice::FillReserve() {
  while (!reserve_.whole()) {
    if (image_.spare > 0) {
      --image_.spare;
    } else if (!HasRoom()) {
      return Status::ResourceExhausted("no space left on the device for the reserve");
    }
    reserve_.Add();
  }
  image_.spare = 0;
  return Status::Ok();
}

Status SimDevice::TakeRoom(const SimIo& io) {
  if (!io.from) {
    const Status filled = FillReserve();
    if (!filled.ok()) return filled.WithContext("making " + NameOf(io.id));
  }
  if (HasRoom() || (io.from && reserve_.Take(*io.from))) return Status::Ok();
  return Status::ResourceExhausted("making " + NameOf(io.id) + ": no space left on the device");
}

void SimDevice::EndCreate(SimIo& io) {
  if (io.fails) {
    *io.status = Failure(io, "Input/output error");
  } else if (image_.segments.contains(io.id)) {
    *io.status = Status::AlreadyExists("the segment " + NameOf(io.id) + " exists");
  } else if (*io.status = TakeRoom(io); io.status->ok()) {
    image_.segments.emplace(io.id, NewSegment());
  }
}

void SimDevice::EndFile(SimIo& io) {
  const auto at = image_.files.find(io.name);
  if (io.fails) {
    *io.status = Failure(io, "Input/output error");
  } else if (io.kind != SimIo::Kind::kReadFile && faults_.files_full) {
    *io.status = Status::ResourceExhausted("file sim/" + io.name + ": no space left on the device");
  } else if (io.kind != SimIo::Kind::kReplaceFile && at == image_.files.end()) {
    *io.status = Status::NotFound("there is no file sim/" + io.name);
  } else if (io.kind == SimIo::Kind::kReadFile) {
    *io.read = at->second;
    counts_.bytes_read += at->second.size();
  } else {
    counts_.bytes_written += io.bytes.size();
    if (io.kind == SimIo::Kind::kReplaceFile) {
      image_.files[io.name] = std::move(io.bytes);
    } else {
      at->second += io.bytes;
    }
  }
}

Status SimDevice::Remove(SegmentId id) {
  const auto at = image_.segments.find(id);
  if (at == image_.segments.end()) return Status::NotFound("there is no segment " + NameOf(id));
  if (faults_.stopped) return Status::Ok();  // nobody does anything behind the crash
  removed_.emplace_back(id, at->second);
  if (removed_.size() > kRemovedMax) removed_.pop_front();
  image_.segments.erase(at);
  reserve_.Add();
  return Status::Ok();
}

Status SimDevice::RemoveFile(std::string_view name) {
  const auto at = image_.files.find(name);
  if (at == image_.files.end()) {
    return Status::NotFound("there is no file sim/" + std::string(name));
  }
  if (faults_.stopped) return Status::Ok();
  removed_files_.emplace_back(at->first, at->second);
  if (removed_files_.size() > kRemovedMax) removed_files_.pop_front();
  image_.files.erase(at);
  return Status::Ok();
}

SimImage SimDevice::Crash() {
  faults_.stopped = true;
  for (auto& [place, io] : under_way_) {
    if (io.kind == SimIo::Kind::kTransfer && io.io->kind == IoKind::kWrite) LandInPart(io);
    if (io.kind == SimIo::Kind::kCreate && !image_.segments.contains(io.id) && random_.OneIn(2)) {
      image_.segments.emplace(io.id, NewSegment());
    }
    if (io.kind == SimIo::Kind::kReplaceFile && random_.OneIn(2)) image_.files[io.name] = io.bytes;
    if (const auto at = image_.files.find(io.name);
        io.kind == SimIo::Kind::kAppendFile && at != image_.files.end()) {
      at->second += io.bytes.substr(0, random_.Below(io.bytes.size() + 1));
    }
  }
  under_way_.clear();
  SimImage left;
  left.files = std::move(image_.files);
  for (const auto& [name, bytes] : removed_files_) {
    if (random_.OneIn(2)) left.files.emplace(name, bytes);
  }
  for (const auto& [id, segment] : image_.segments) {
    if (!segment->created_durably() && random_.OneIn(2)) continue;
    left.segments.emplace(id, std::make_shared<SimSegment>(segment->AfterCrash(random_)));
  }
  left.spare = image_.spare + reserve_.held();
  for (const auto& [id, segment] : removed_) {
    if (!random_.OneIn(2)) continue;
    left.spare -= std::min<uint64_t>(left.spare, 1);  // its room may have become the reserve's
    left.segments.emplace(
        id, std::make_shared<SimSegment>(random_.OneIn(2) ? segment->AfterCrash(random_)
                                                          : SimSegment(random_.Next())));
  }
  return left;
}

}  // namespace farleaf::index::storage
