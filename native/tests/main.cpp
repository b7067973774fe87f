#include <cstdio>

#include "tests/test.hpp"

namespace gnomon::tests {
namespace {

int passed = 0, failed = 0;

}  // namespace

void expect(bool holds, const char* what) {
    ++(holds ? passed : failed);
    if (!holds) std::printf("FAILED: %s\n", what);
}

}  // namespace gnomon::tests

int main() {
    using namespace gnomon::tests;
    shared_tests();
    cell_tests();
    replay_tests();
    trace_tests();
    queueing_tests();
    placement_tests();
    choice_tests();
    cores_tests();
    mesh_tests();
    reuse_tests();
    thresholds_tests();
    decima_tests();
    cluster_tests();
    std::printf("native: %d passed, %d failed\n", passed, failed);
    return failed == 0 ? 0 : 1;
}
