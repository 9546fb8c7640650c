// RecordPeer: a protocol on records, on one connection without a socket or threads: bytes go in, in pieces of
// any size, and the answers come out. Records are in a map, or in a tree that is given; time stands still unless it is
// moved.
//
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/frontend/ordered_connection.h"
#include "test/support/map_tree_host.h"

namespace farleaf::test {

class RecordPeer : public server::ServingThread {
 public:
  /// Takes up to `bytes` of the stream, as much as the connection wants. False: it is at its end.
  bool Send(std::string_view* stream, size_t bytes);
  /// Up to so many bytes of what waits to be sent.
  void Receive(size_t bytes);
  /// All of `request`, and what is answered to it.
  std::string Ask(std::string_view request);
  /// Everything, in pieces of so many bytes, and what was answered.
  std::string Exchange(std::string_view stream, size_t piece_bytes);
  /// The peer sends no more, and reads all.
  void End();
  /// The peer sends what is taken at once of requests, reads nothing, and is gone. Returns how many were in flight.
  uint64_t AbandonBehind(std::string_view requests);

  server::Connection& connection() { return *connection_; }
  MapIndex& index() { return index_; }
  ManualClock& wall() { return wall_; }
  const std::string& received() const { return received_; }

  // ServingThread.
  bool full() const override { return false; }
  void Serve(server::Connection&, dsm::Task<void> task) override;
  void Served(server::Connection&) override {}
  void Flush(server::Connection&) override {}
  void RunAside(dsm::Task<void> task) override;
  void Link(server::Running&) override {}
  void Record(server::OperationRecord) override {}

 protected:
  /// `tree`: null: a map of its own.
  explicit RecordPeer(dsm::Worker* worker, index::RangeIndex* tree = nullptr);
  ~RecordPeer() override;
  /// The protocol's, which is of the derived class: to be called by its constructor, and its destructor.
  void Open(server::Connection* connection) { connection_ = connection; }
  void Close();

  const server::RecordStore& records() const { return store_; }
  dsm::Task<Status> DeleteAllKeys();

 private:
  /// Until all has ended, or waits for output to be sent.
  void RunAll();

  MapIndex index_;
  ManualClock wall_;
  const server::RecordStore store_;
  std::string received_;
  server::Connection* connection_ = nullptr;
};

}  // namespace farleaf::test
