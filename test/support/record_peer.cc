#include "test/support/record_peer.h"

#include <algorithm>
#include <utility>

#include "dsm/base/check.h"
#include "server/records/record_walk.h"

namespace farleaf::test {

bool RecordPeer::Send(std::string_view* stream, size_t bytes) {
  if (stream->empty() || !connection_->failure().ok()) return false;
  RunAll();
  if (!connection_->wants_input()) {
    const bool ended = connection_->output().empty();  // it has quit
    Receive(SIZE_MAX);
    return !ended;
  }
  const auto space = connection_->InputSpace();
  FARLEAF_CHECK(!space.empty());
  const size_t piece = std::min({stream->size(), space.size(), bytes});
  std::copy_n(stream->data(), piece, reinterpret_cast<char*>(space.data()));
  stream->remove_prefix(piece);
  arrival_ns_ = worker_->clock().NowNs();
  connection_->InputArrived(piece);
  RunAll();
  return true;
}

void RecordPeer::Receive(size_t bytes) {
  const size_t taken = std::min(bytes, connection_->output().size());
  received_.append(connection_->output().substr(0, taken));
  connection_->OutputSent(taken);
  connection_->Continue();
  RunAll();
}

std::string RecordPeer::Ask(std::string_view request) {
  const size_t before = received_.size();
  while (Send(&request, SIZE_MAX)) Receive(SIZE_MAX);
  return received_.substr(before);
}

std::string RecordPeer::Exchange(std::string_view stream, size_t piece_bytes) {
  while (Send(&stream, piece_bytes)) Receive(SIZE_MAX);
  End();
  return received_;
}

void RecordPeer::End() {
  connection_->PeerEnded();
  while (!connection_->finished()) Receive(SIZE_MAX);
}

uint64_t RecordPeer::AbandonBehind(std::string_view requests) {
  Send(&requests, SIZE_MAX);
  const uint64_t in_flight = connection_->in_flight();
  connection_->InputEnded();
  connection_->Abandon();
  Receive(0);
  return in_flight;
}

void RecordPeer::Serve(server::Connection&, dsm::Task<void> task) {
  worker_->Spawn(std::move(task));
}

void RecordPeer::RunAside(dsm::Task<void> task) { worker_->Spawn(std::move(task)); }

RecordPeer::RecordPeer(dsm::Worker* worker, index::RangeIndex* tree)
    : store_(tree ? tree : &index_, &wall_) {
  worker_ = worker;
  arrival_ns_ = worker->clock().NowNs();
  wall_.AdvanceNs(uint64_t{1'700'000'000} * kNsPerSecond);
  worker_->GoOnline();
}

RecordPeer::~RecordPeer() { worker_->GoOffline(); }

void RecordPeer::Close() {
  connection_->Abandon();
  RunAll();
}

dsm::Task<Status> RecordPeer::DeleteAllKeys() {
  dsm::FabricCounts counts;
  const server::WalkContext walk{*worker_, counts, 1'000'000, [] { return false; }};
  const Status flushed = co_await server::DeleteAll(walk, store_, server::kUserKeySpace);
  co_return flushed;
}

void RecordPeer::RunAll() {
  while (worker_->RunOnce(dsm::Worker::Idle::kReturn)) {
  }
  connection_->Continue();
}

}  // namespace farleaf::test
