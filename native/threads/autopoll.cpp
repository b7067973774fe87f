// Polls without touching the source: compile your code with one of these, and link this library.
//
//     -fsanitize-coverage=trace-pc     a poll in every basic block (GCC and Clang)
//     -finstrument-functions           a poll at the begin and end of every function
#include "gnomon/threads.h"

#define GNT_NO_POLL __attribute__((no_instrument_function))

extern "C" {

GNT_API GNT_NO_POLL void __sanitizer_cov_trace_pc() { gnt_poll(); }
GNT_API GNT_NO_POLL void __cyg_profile_func_enter(void*, void*) { gnt_poll(); }
GNT_API GNT_NO_POLL void __cyg_profile_func_exit(void*, void*) { gnt_poll(); }

}  // extern "C"
