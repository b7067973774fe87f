package gnomon.spark;

import gnomon.spark.Hands.ExecutorView;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Compares what the application has told with what Spark itself knows. Spark drops events when it
 * is pressed, and what has begun would then never end. An event may also just be late: only what is
 * missing at two looks in a row is dropped.
 */
final class Audit {
  private final Hands hands;
  private final Ledger ledger;
  private Set<Integer> endedJobs = Collections.emptySet();
  private Set<String> goneExecutors = Collections.emptySet();
  private Set<String> emptyExecutors = Collections.emptySet();

  Audit(Hands hands, Ledger ledger) {
    this.hands = hands;
    this.ledger = ledger;
  }

  void look() {
    endedJobs = dropSecondTime(findEndedJobs(), endedJobs, ledger::dropJob);
    goneExecutors = dropSecondTime(findGoneExecutors(), goneExecutors, ledger::dropExecutor);
    emptyExecutors = dropSecondTime(findEmptyExecutors(), emptyExecutors, ledger::dropTasksOn);
  }

  /** Answers what is missing now, for the next look. */
  private static <T> Set<T> dropSecondTime(Set<T> missing, Set<T> before, Consumer<T> drop) {
    for (T each : missing) {
      if (before.contains(each)) {
        drop.accept(each);
      }
    }
    return missing;
  }

  private Set<Integer> findEndedJobs() {
    // Spark's list of jobs is made of events as well: one with tasks to run has surely not ended.
    Set<Integer> atWork = Hands.stages(hands.locked(hands::works));
    Set<Integer> idle = new HashSet<>();
    for (Ledger.JobEntry job : ledger.jobs()) {
      if (Collections.disjoint(job.stages, atWork)) {
        idle.add(job.job);
      }
    }
    return hands.missingJobs(idle);
  }

  private Set<String> findGoneExecutors() {
    Set<String> told = new HashSet<>();
    ledger.executors().forEach(executor -> told.add(executor.id));
    return hands.missingExecutors(told);
  }

  /** Those that run nothing as the scheduler counts, although something was told to run there. */
  private Set<String> findEmptyExecutors() {
    Set<String> found = new HashSet<>();
    for (ExecutorView executor : hands.executors()) {
      if (executor.running == 0 && !executor.isQuiet) {
        found.add(executor.id);
      }
    }
    return found;
  }
}
