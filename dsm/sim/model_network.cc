#include "dsm/sim/model_network.h"

#include <algorithm>

namespace farleaf::dsm {

namespace {
double EachPs(double rate_mps) { return 1e6 / rate_mps; }
uint64_t Rounded(double ps) { return static_cast<uint64_t>(ps + 0.5); }
}  // namespace

ModelNetwork::ModelNetwork(const CostModel& model, uint64_t seed)
    : model_(model),
      random_(seed),
      request_ps_(PsOfNs(model.request_ns)),
      wire_ps_(PsOfNs(model.wire_ns)),
      read_ps_(PsOfNs(model.read_ns)),
      write_ps_(PsOfNs(model.write_ns)),
      atomic_ps_(PsOfNs(model.atomic_ns)),
      device_atomic_ps_(PsOfNs(model.device_atomic_ns)),
      reply_ps_(PsOfNs(model.reply_ns)),
      jitter_ps_(PsOfNs(model.jitter_ns_max)),
      request_each_ps_(EachPs(model.request_rate_mps)),
      read_each_ps_(EachPs(model.read_rate_mps)),
      write_each_ps_(EachPs(model.write_rate_mps)),
      atomic_each_ps_(EachPs(model.atomic_rate_mps)),
      byte_ps_(8e3 / model.bandwidth_gbps) {
  const uint64_t hosts = model.shared_hosts ? std::max(model.memory_servers, model.compute_servers)
                                            : model.memory_servers + model.compute_servers;
  nics_.resize(hosts);
}

ModelNetwork::Way ModelNetwork::WayOf(uint32_t compute_server, uint32_t memory_server) const {
  const auto first = static_cast<uint32_t>(model_.shared_hosts ? 0 : model_.memory_servers);
  return {first + compute_server, memory_server};
}

uint64_t ModelNetwork::Transfer(uint64_t bytes, uint64_t messages) const {
  return Rounded(static_cast<double>(bytes + messages * model_.header_bytes) * byte_ps_);
}

uint64_t ModelNetwork::Wire() {
  return wire_ps_ + (jitter_ps_ > 0 ? random_.Below(jitter_ps_ + 1) : 0);
}

uint64_t ModelNetwork::Serve(uint64_t& free_ps, uint64_t& busy_ps, uint64_t now_ps,
                             uint64_t service_ps) {
  free_ps = std::max(free_ps, now_ps) + service_ps;
  busy_ps += service_ps;
  return free_ps;
}

uint64_t ModelNetwork::Receive(Nic& nic, uint64_t now_ps, uint64_t service_ps) {
  // Its first byte came service_ps before its last, if nothing else used the link.
  nic.in_free_ps = std::max(now_ps, nic.in_free_ps + service_ps);
  nic.busy.in_ps += service_ps;
  return nic.in_free_ps;
}

uint64_t ModelNetwork::Depart(Way way, const BatchLoad& load, uint64_t now_ps) {
  Nic& nic = nics_[way.from];
  uint64_t at_ps = Serve(nic.requests_free_ps, nic.busy.requests_ps, now_ps,
                         Rounded(load.verbs() * request_each_ps_));
  if (way.loopback()) return at_ps;
  at_ps = Serve(nic.out_free_ps, nic.busy.out_ps, at_ps, Transfer(load.bytes_out, load.verbs()));
  return at_ps + Wire();
}

uint64_t ModelNetwork::Arrive(Way way, const BatchLoad& load, uint64_t now_ps) {
  Nic& nic = nics_[way.to];
  uint64_t at_ps = now_ps;
  if (!way.loopback()) at_ps = Receive(nic, now_ps, Transfer(load.bytes_out, load.verbs()));
  const double each_ps = load.reads * read_each_ps_ + load.writes * write_each_ps_ +
                         static_cast<double>(load.atomics.size()) * atomic_each_ps_;
  at_ps = Serve(nic.serving_free_ps, nic.busy.serving_ps, at_ps, Rounded(each_ps));
  if (load.writes > 0) at_ps += write_ps_;
  for (const BatchLoad::Atomic& atomic : load.atomics) {
    uint64_t& slot_free_ps = nic.slots_free_ps[atomic.slot];
    slot_free_ps = std::max(slot_free_ps, at_ps) + (atomic.device ? device_atomic_ps_ : atomic_ps_);
    at_ps = slot_free_ps;
  }
  return at_ps;
}

uint64_t ModelNetwork::Reply(Way way, const BatchLoad& load, uint64_t now_ps) {
  if (way.loopback()) return now_ps;
  Nic& nic = nics_[way.to];
  return Serve(nic.out_free_ps, nic.busy.out_ps, now_ps, TransferBack(load)) + Wire();
}

uint64_t ModelNetwork::Land(Way way, const BatchLoad& load, uint64_t now_ps) {
  const uint64_t at_ps =
      way.loopback() ? now_ps : Receive(nics_[way.from], now_ps, TransferBack(load));
  return at_ps + reply_ps_;
}

/// Replies carry what was read; WRITEs at a batch's end are acknowledged by one message.
uint64_t ModelNetwork::TransferBack(const BatchLoad& load) const {
  const uint64_t answers = load.reads + load.atomics.size();
  return Transfer(load.bytes_in, std::max<uint64_t>(answers, 1));
}

}  // namespace farleaf::dsm
