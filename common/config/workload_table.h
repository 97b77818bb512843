// The fields of a workload (docs/config.md), and the hash by which two records may be compared. No torch.
#pragma once

#include <map>
#include <string>

#include "common/config/field_table.h"
#include "common/config/workload.h"

namespace sc {

FieldTable<Workload> workload_fields();

/// All fields of a workload as lines "path=value", sorted: what records store and the hash covers.
std::string workload_text(const Workload& workload);
std::string workload_hash(const Workload& workload);

/// Reads back the workload that a record or a checkpoint stores as texts, with older keys too. Missing fields
/// get their defaults; unknown names are ignored.
///   Errors  InputError (exit 65) with `where` and the key of an impossible value.
Workload workload_of_texts(const std::map<std::string, std::string>& written, const std::string& where);

/// Derives the dtypes that follow others (`grad_dtype: same`). resolve() calls this; code that changes a
/// dtype by hand must do so too.
void resolve_dtypes(PrecisionConfig& precision);

}  // namespace sc
