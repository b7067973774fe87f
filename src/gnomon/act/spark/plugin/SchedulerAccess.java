package gnomon.spark;

import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;

/**
 * What can be done to a scheduler and seen of it. The rules (Stages, Quota, Controller) know a
 * scheduler by this alone, so that they can be tried without one.
 */
interface SchedulerAccess {
  /** Each capability by name, with "" where it is there and the reason where it is not. */
  Map<String, String> capabilities();

  /** Runs while the scheduler stands still: no task is placed meanwhile. Never waits for others. */
  <T> T locked(Supplier<T> action);

  /** Stages that have tasks to run or running, the first to be served first. */
  List<TaskSetView> taskSets();

  /** The numbers of these stages. */
  static Set<Integer> stages(List<TaskSetView> taskSets) {
    Set<Integer> numbers = new HashSet<>();
    taskSets.forEach(taskSet -> numbers.add(taskSet.stage()));
    return numbers;
  }

  /** Of these jobs, those that Spark does not call active; none where it does not say. */
  Set<Integer> missingJobs(Set<Integer> jobs);

  /** Of these executors, those that the cluster's side of Spark does not know; none likewise. */
  Set<String> missingExecutors(Set<String> ids);

  /** Takes a stage out of what is served; its running tasks go on. */
  void hold(TaskSetView taskSet);

  /** Puts it back. */
  void release(TaskSetView taskSet);

  /** Drops what is kept for parked stages that have ended; false when nothing is kept any more. */
  boolean forgetEnded();

  void setPriority(TaskSetView taskSet, int priority);

  /** The scheduler looks again for tasks to place. */
  void reviveOffers();

  List<ExecutorView> executors();

  /** Asks for so many executors in all; "" or why not. May wait for the cluster. */
  String setTarget(int count);

  /** As it was before the first setTarget; "" or why not. */
  String restoreTarget();

  /** How many are asked for now; -1 where it is not known. */
  int requestedExecutors();

  /** Executors leave once their running tasks have ended; answers those that will. */
  List<String> decommission(List<String> ids);

  /** True where an executor can be decommissioned while tasks run on it. */
  boolean canDecommissionBusy();

  /** Those that hold what would be lost with them: cached data and shuffle output, not copies. */
  Set<String> executorsWithBlocks();

  /** Tasks that an executor has room for at once; 0 where that is not known. */
  int slots(ExecutorView executor);

  /** True while a job waits outside because its barrier stage did not find slots enough. */
  boolean hasRejectedBarrierJob();

  /** A stage's tasks in the scheduler. */
  interface TaskSetView {
    int stage();

    int attempt();

    int tasks();

    int running();

    int finished();

    int priority();

    int firstPriority();

    boolean isHeld();

    /** Tasks that have to start at once; 0 where it is no barrier stage. */
    int barrierSlots();
  }

  /** An executor as it is seen now. */
  final class ExecutorView {
    final String id;
    final String host;
    final int cores;
    final int running;
    /** Nothing runs there by any count: the scheduler's is ahead of the events. */
    final boolean isIdle;
    final boolean leaving;
    /** Shuffle output it has written: what would be lost, or moved, with it. */
    final long shuffleBytes;

    ExecutorView(
        String id,
        String host,
        int cores,
        int running,
        boolean isIdle,
        boolean leaving,
        long shuffleBytes) {
      this.id = id;
      this.host = host;
      this.cores = cores;
      this.running = running;
      this.isIdle = isIdle;
      this.leaving = leaving;
      this.shuffleBytes = shuffleBytes;
    }
  }
}
