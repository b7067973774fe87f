#include "bindings/arrays.hpp"

namespace nb = nanobind;

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // caches of Python keep native objects until the interpreter ends
    m.doc() = "The native core: typed fronts are in gnomon.graph, gnomon.sim and gnomon.report.";
    gnomon::bindings::bind_replay(m);
    gnomon::bindings::bind_queueing(m);
    gnomon::bindings::bind_cores(m);
    gnomon::bindings::bind_threads(m);
    gnomon::bindings::bind_mesh(m);
    gnomon::bindings::bind_thresholds(m);
    gnomon::bindings::bind_placement(m);
    gnomon::bindings::bind_choice(m);
    gnomon::bindings::bind_cluster(m);
    gnomon::bindings::bind_decima(m);
    gnomon::bindings::bind_perfetto(m);
    gnomon::bindings::bind_trace(m);
}
