// The engine under address and undefined-behaviour sanitizers, without Python: a file a simulator.
// What answers should be in general is tested from Python against slow references; here: answers that
// are known, promises that hold on random input, and nothing read or written out of bounds.
#pragma once

namespace gnomon::tests {

void expect(bool holds, const char* what);

void cell_tests();
void choice_tests();
void cluster_tests();
void cores_tests();
void decima_tests();
void mesh_tests();
void placement_tests();
void queueing_tests();
void replay_tests();
void shared_tests();
void reuse_tests();
void thresholds_tests();
void trace_tests();

}  // namespace gnomon::tests
