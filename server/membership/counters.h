// Counters kept as entries, counted up by compare-and-set: incarnations of nodes, ids of regions.
//
// Thread rule: those of Membership.
#pragma once

#include <cstdint>
#include <string>

#include "dsm/member.h"
#include "server/membership/membership.h"

namespace farleaf::server::membership {

/// Creates the persistent entries of `path` that are missing, without bytes.
dsm::Task<Status> CreatePath(dsm::Worker& worker, Membership& session, std::string path);

/// The next number of the counter at `path`, from 1: no two calls are given the same, and a call that begins behind another's
/// end is given a larger one. Numbers may be left out. Corruption: the entry is no counter. DeadlineExceeded: too many others
/// count.
dsm::Task<Result<uint64_t>> NextNumber(dsm::Worker& worker, Membership& session, std::string path);

/// Who node `id` is from now on: its last identity with the next incarnation.
dsm::Task<Result<dsm::MemberIdentity>> NextIncarnation(dsm::Worker& worker, Membership& session,
                                                       dsm::MemberId id);

}  // namespace farleaf::server::membership
