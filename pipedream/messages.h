// Places sends and receives into a schedule of compute actions so that it cannot deadlock.
#pragma once

#include "pipedream/schedule.h"

namespace sc::pipedream {

Schedule without_messages(const Schedule& schedule);

/// Adds the sends and receives that a schedule of compute actions (and step, stash, drop) needs.
///   Sends     directly after the action that makes the value.
///   Receives  before the action that precedes the one that needs the value, so that it travels during that
///             action; earlier if the sender would otherwise wait for it. Both ends of a directed pair use
///             the same order.
///   Proof     imagine all compute actions in one line, each after what it needs, and every receive directly
///             before its send. Each stage's list is that line seen from one stage, or has receives even
///             earlier; so the first action of the line that has not been done can always be done.
///   Errors    InputError (data) if the compute actions wait for each other in a cycle, or for something that
///             is never made.
Schedule with_messages(const Schedule& compute);

}  // namespace sc::pipedream
