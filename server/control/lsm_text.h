// What farleafctl lsm prints of a store, as text and as JSON.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "index/lsm/closed_store.h"
#include "server/control/text_form.h"

namespace farleaf::server {

std::string StatsText(const std::string& directory, const index::lsm::StoreStats& stats);
std::string StatsJson(const index::lsm::StoreStats& stats);

/// A line; in front of a table's first one another that says which table it is.
std::string TableRowText(const index::lsm::ClosedStore::TableRow& row, TextForm form, bool is_new);
std::string TableRowJson(const index::lsm::ClosedStore::TableRow& row);

}  // namespace farleaf::server
