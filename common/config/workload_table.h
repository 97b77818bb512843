// The fields of a workload (docs/config.md), and the hash by which two records may be compared. No torch.
#pragma once

#include <map>
#include <string>

#include "common/config/field_table.h"
#include "common/config/workload.h"

namespace sc {

FieldTable<Workload> workload_fields();

/// "path=value" of every field, sorted: what a record holds and what the hash covers.
std::string workload_text(const Workload& workload);
/// SHA-256 of workload_text.
std::string workload_hash(const Workload& workload);

/// What another program of this project wrote down, keys and values as text, also in older keys: of
/// fields that it does not name the defaults, of names that are no fields' nothing.
///   Errors  InputError (exit 65) naming `where` and the key of a value that cannot be.
Workload workload_of_texts(const std::map<std::string, std::string>& written, const std::string& where);

/// Works out the dtypes that follow others (`grad_dtype: same`). resolve() calls it; so must code that
/// changes a dtype by hand.
void resolve_dtypes(PrecisionConfig& precision);

}  // namespace sc
