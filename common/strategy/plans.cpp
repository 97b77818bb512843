#include "common/strategy/plans.h"

#include "common/base/check.h"

namespace sc {

void refuse_setting(const std::string& key, const std::string& why, const std::string& fix) {
  throw InputError(ExitCode::usage, key, why, fix);
}

void set_all(const FieldSet& fields, const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    fields.set(setting.substr(0, equals), {Value::Form::flag, setting.substr(equals + 1)}, setting);
  }
}

}  // namespace sc
