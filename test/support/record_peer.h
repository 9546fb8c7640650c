// RecordPeer: a protocol on records, on one connection without a socket or threads: bytes go in, in pieces of
// any size, and the answers come out. Records are in a map, or in a tree that is given; time stands still unless it is
// moved.
//
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/frontend/ordered_connection.h"
#include "server/records/record_walk.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {

class RecordPeer : public server::ServingThread {
 public:
  /// Takes up to `bytes` of the stream, as much as the connection wants. False: it is at its end.
  bool Send(std::string_view* stream, size_t bytes) {
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
  /// Up to so many bytes of what waits to be sent.
  void Receive(size_t bytes) {
    const size_t taken = std::min(bytes, connection_->output().size());
    received_.append(connection_->output().substr(0, taken));
    connection_->OutputSent(taken);
    connection_->Continue();
    RunAll();
  }
  /// All of `request`, and what is answered to it.
  std::string Ask(std::string_view request) {
    const size_t before = received_.size();
    while (Send(&request, SIZE_MAX)) Receive(SIZE_MAX);
    return received_.substr(before);
  }
  /// Everything, in pieces of so many bytes, and what was answered.
  std::string Exchange(std::string_view stream, size_t piece_bytes) {
    while (Send(&stream, piece_bytes)) Receive(SIZE_MAX);
    End();
    return received_;
  }
  /// The peer sends no more, and reads all.
  void End() {
    connection_->PeerEnded();
    while (!connection_->finished()) Receive(SIZE_MAX);
  }
  /// The peer sends what is taken at once of requests, reads nothing, and is gone. Returns how many were in flight.
  uint64_t AbandonBehind(std::string_view requests) {
    Send(&requests, SIZE_MAX);
    const uint64_t in_flight = connection_->in_flight();
    connection_->InputEnded();
    connection_->Abandon();
    Receive(0);
    return in_flight;
  }

  server::Connection& connection() { return *connection_; }
  MapIndex& index() { return index_; }
  ManualClock& wall() { return wall_; }
  const std::string& received() const { return received_; }

  // ServingThread.
  bool full() const override { return false; }
  void Serve(server::Connection&, dsm::Task<void> task) override {
    worker_->Spawn(std::move(task));
  }
  void Served(server::Connection&) override {}
  void Flush(server::Connection&) override {}
  void RunAside(dsm::Task<void> task) override { worker_->Spawn(std::move(task)); }
  void Link(server::Running&) override {}
  void Record(server::OperationRecord) override {}

 protected:
  /// `tree`: null: a map of its own.
  explicit RecordPeer(dsm::Worker* worker, index::RangeIndex* tree = nullptr)
      : store_(tree ? tree : &index_, &wall_) {
    worker_ = worker;
    arrival_ns_ = worker->clock().NowNs();
    wall_.AdvanceNs(uint64_t{1'700'000'000} * kNsPerSecond);
    worker_->GoOnline();
  }
  ~RecordPeer() override { worker_->GoOffline(); }
  /// The protocol's, which is of the derived class: to be called by its constructor, and its destructor.
  void Open(server::Connection* connection) { connection_ = connection; }
  void Close() {
    connection_->Abandon();
    RunAll();
  }

  const server::RecordStore& records() const { return store_; }
  dsm::Task<Status> DeleteAllKeys() {
    dsm::FabricCounts counts;
    const server::WalkContext walk{*worker_, counts, 1'000'000, [] { return false; }};
    const Status flushed = co_await server::DeleteAll(walk, store_, server::kUserKeySpace);
    co_return flushed;
  }

 private:
  /// Until all has ended, or waits for output to be sent.
  void RunAll() {
    while (worker_->RunOnce(dsm::Worker::Idle::kReturn)) {
    }
    connection_->Continue();
  }

  MapIndex index_;
  ManualClock wall_;
  const server::RecordStore store_;
  std::string received_;
  server::Connection* connection_ = nullptr;
};

}  // namespace farleaf::test
