// Code in which a signal may preempt: ranges of addresses that were allowed.
#pragma once

namespace gnomon::threads {

/// Safe in a signal handler.
bool may_be_cut(const void* pc);

/// The executable segments of the module that holds an address; outside of modules (code made at run time) its mapping.
/// Returns 0 or an error of the C interface.
int allow_module(const void* address_inside);
/// The same for a function that is launched, unless it is of a run-time library: those are never cut because of it.
int allow_launched(const void* function);
int allow_range(const void* begin, const void* end);
void allow_everything(bool is_allowed);

}  // namespace gnomon::threads
