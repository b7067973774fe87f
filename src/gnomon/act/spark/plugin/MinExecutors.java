package gnomon.spark;

import gnomon.spark.SchedulerAccess.ExecutorView;
import gnomon.spark.SchedulerAccess.TaskSetView;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;

/**
 * How many executors a quota has to leave. The tasks of a barrier stage start all at once or not
 * at all, and Spark fails a job whose barrier stage does not find that many slots in time.
 */
final class MinExecutors {
  /** As many as the application would have without us. */
  static final int ALL = Integer.MAX_VALUE;

  private static final Need NOTHING = new Need(0, "");
  /** A job that was turned away is known a moment later than Spark has let it in. */
  private static final long GRACE_NS = TimeUnit.SECONDS.toNanos(3);

  private final SchedulerAccess access;
  private final ActivityListener activity;
  private final LongSupplier clock;
  private boolean wasRejected;
  private long rejectedNs;

  /** Executors that have to stay, and why. */
  static final class Need {
    final int executors;
    final String why;

    Need(int executors, String why) {
      this.executors = executors;
      this.why = why;
    }
  }

  MinExecutors(SchedulerAccess access, ActivityListener activity, LongSupplier clock) {
    this.access = access;
    this.activity = activity;
    this.clock = clock;
  }

  Need now() {
    boolean isRejected = access.hasRejectedBarrierJob();
    if (isRejected) {
      wasRejected = true;
      rejectedNs = clock.getAsLong();
    }
    wasRejected &= clock.getAsLong() - rejectedNs < GRACE_NS;
    int slots = slots();
    if (isRejected || (slots == 0 && wasRejected)) {
      // Spark says that such a job waits, not how many slots it waits for.
      return new Need(ALL, "all executors are left to a job whose barrier stage waits for slots");
    }
    if (slots == 0) {
      return NOTHING;
    }
    wasRejected = false;
    int each = slotsOfTheSmallest();
    if (slots == ActivityListener.UNKNOWN_SLOTS || each == 0) {
      return new Need(ALL, "all executors are left to a barrier stage whose slots are not known");
    }
    int executors = 1 + (slots - 1) / each;
    return new Need(
        executors,
        executors + " executors are left to a barrier stage that starts " + slots + " tasks at once");
  }

  /** Of the widest barrier stage: the scheduler knows those that are submitted, events or not. */
  private int slots() {
    List<TaskSetView> taskSets = access.locked(access::taskSets);
    int most = activity.barrierSlots(SchedulerAccess.stages(taskSets), System.currentTimeMillis());
    for (TaskSetView taskSet : taskSets) {
      most = Math.max(most, taskSet.barrierSlots());
    }
    return most;
  }

  /** Whichever executors leave, those that stay have at least so many each; 0 if not known. */
  private int slotsOfTheSmallest() {
    int fewest = 0;
    for (ExecutorView executor : access.executors()) {
      int slots = access.slots(executor);
      if (!executor.leaving) {
        fewest = fewest == 0 ? slots : Math.min(fewest, slots);
      }
    }
    return fewest;
  }
}
