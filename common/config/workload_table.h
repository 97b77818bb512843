// The fields of a workload (docs/config.md), and the hash by which two records may be compared. No torch.
#pragma once

#include <map>
#include <string>

#include "common/config/field_table.h"
#include "common/config/workload.h"

namespace sc {

FieldTable<Workload> workload_fields();

/// The lines "path=value" of all fields, sorted: stored in records and covered by the hash.
std::string workload_text(const Workload& workload);
/// SHA-256 of workload_text().
std::string workload_hash(const Workload& workload);

/// The workload that a record or a checkpoint stores as texts, also with older keys. Missing fields get their
/// defaults; unknown names are ignored.
///   Errors  InputError (exit 65) with `where` and the key of an impossible value.
Workload workload_of_texts(const std::map<std::string, std::string>& written, const std::string& where);

/// Derives the dtypes that follow others (`grad_dtype: same`). resolve() calls it; code that changes a dtype
/// by hand must call it too.
void resolve_dtypes(PrecisionConfig& precision);

}  // namespace sc
