package gnomon.spark;

import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Consumer;

/**
 * Compares what events have reported with what Spark itself knows. Spark drops events when it
 * is pressed, and what has begun would then never end. An event may also just be late: only what is
 * missing at two looks in a row is dropped. Tasks that an executor was given are left alone: until
 * their end is reported, their output may be known to nobody.
 */
final class Reconciler {
  private final SchedulerAccess access;
  private final ActivityListener activity;
  private Set<Integer> endedJobs = Collections.emptySet();
  private Set<String> goneExecutors = Collections.emptySet();

  Reconciler(SchedulerAccess access, ActivityListener activity) {
    this.access = access;
    this.activity = activity;
  }

  void look() {
    try {
      endedJobs = dropSecondTime(findEndedJobs(), endedJobs, activity::dropJob);
      goneExecutors = dropSecondTime(findGoneExecutors(), goneExecutors, activity::dropExecutor);
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
    Set<Integer> atWork = SchedulerAccess.stages(access.locked(access::taskSets));
    Set<Integer> idle = new HashSet<>();
    for (ActivityListener.JobEntry job : activity.jobs()) {
      if (Collections.disjoint(job.stages, atWork)) {
        idle.add(job.job);
      }
    }
    return access.missingJobs(idle);
  }

  private Set<String> findGoneExecutors() {
    Set<String> reported = new HashSet<>();
    activity.executors().forEach(executor -> reported.add(executor.id));
    return access.missingExecutors(reported);
  }
}
