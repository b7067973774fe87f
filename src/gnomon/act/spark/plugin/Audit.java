package gnomon.spark;

import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Compares what the application has told with what Spark itself knows. Spark drops events when it
 * is pressed, and what has begun would then never end. An event may also just be late: only what is
 * missing at two looks in a row is dropped. What an executor was told to run is left alone: until
 * its end is told, its output may be known to nobody.
 */
final class Audit {
  private final Hands hands;
  private final Ledger ledger;
  private Set<Integer> endedJobs = Collections.emptySet();
  private Set<String> goneExecutors = Collections.emptySet();

  Audit(Hands hands, Ledger ledger) {
    this.hands = hands;
    this.ledger = ledger;
  }

  void look() {
    try {
      endedJobs = dropSecondTime(findEndedJobs(), endedJobs, ledger::dropJob);
      goneExecutors = dropSecondTime(findGoneExecutors(), goneExecutors, ledger::dropExecutor);
    } catch (RuntimeException unclear) {
      // Nothing was done to this Spark: what cannot be compared now is compared at the next look.
      endedJobs = Collections.emptySet();
      goneExecutors = Collections.emptySet();
    }
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
    // One with tasks to run has surely not ended.
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
}
