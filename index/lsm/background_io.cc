#include "index/lsm/background_io.h"

#include "dsm/together.h"

namespace farleaf::index::lsm {

void BackgroundIo::Start(dsm::Worker& worker, storage::Storage& storage, Order order) {
  FARLEAF_CHECK(!running());
  state_ = std::make_shared<State>();
  state_->order = std::move(order);
  worker.Spawn(RunToEnd(worker, storage, state_));
}

dsm::Task<Status> BackgroundIo::Tell(dsm::Worker& worker, const Order& order) {
  for (const storage::Io& io : order.ios) {
    Status told = co_await order.mirror->WriteTable(worker, io.segment, io.offset, io.bytes);
    if (!told.ok()) co_return told;
  }
  co_return Status::Ok();
}

// What copies are sent counts with the commit only, and that comes behind the writes here.
dsm::Task<Status> BackgroundIo::Transfer(dsm::Worker& worker, storage::Storage& storage,
                                         Order& order) {
  if (order.mirror == nullptr) {
    Status carried = co_await storage.Run(worker, order.ios);
    co_return carried;
  }
  Status told;
  dsm::Together telling(worker);
  telling.Start(Tell(worker, order), &told);
  Status carried = co_await storage.Run(worker, order.ios);
  co_await telling.All();
  if (!carried.ok()) co_return carried;
  co_return told;
}

dsm::Task<Status> BackgroundIo::Carry(dsm::Worker& worker, storage::Storage& storage,
                                      Order& order) {
  const storage::Making making{.from = order.from};
  for (const storage::SegmentId id : order.create) {
    Status created = co_await storage.Create(worker, id, making);
    if (!created.ok()) co_return created;
  }
  if (!order.ios.empty()) {
    Status transferred = co_await Transfer(worker, storage, order);
    if (!transferred.ok()) co_return transferred;
  }
  if (!order.syncs.empty()) {
    Status synced = co_await storage.Run(worker, order.syncs);
    if (!synced.ok()) co_return synced;
  }
  co_return Status::Ok();
}

dsm::Task<void> BackgroundIo::RunToEnd(dsm::Worker& worker, storage::Storage& storage,
                                       std::shared_ptr<State> state) {
  Status status = co_await Carry(worker, storage, state->order);
  state->status = std::move(status);
  state->running = false;
  if (state->waiter) worker.ResumeSoon(std::exchange(state->waiter, nullptr));
}

}  // namespace farleaf::index::lsm
