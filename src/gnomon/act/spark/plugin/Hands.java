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
interface Hands {
  /** Each capability by name, with "" where it is there and the reason where it is not. */
  Map<String, String> capabilities();

  /** Runs while the scheduler stands still: no task is placed meanwhile. Never waits for others. */
  <T> T locked(Supplier<T> action);

  /** Stages that have tasks to run or running, the first to be served first. */
  List<Work> works();

  /** The numbers of these stages. */
  static Set<Integer> stages(List<Work> works) {
    Set<Integer> numbers = new HashSet<>();
    works.forEach(work -> numbers.add(work.stage()));
    return numbers;
  }

  /** Of these jobs, those that Spark does not call active; none where it does not say. */
  Set<Integer> missingJobs(Set<Integer> jobs);

  /** Of these executors, those that the cluster's side of Spark does not know; none likewise. */
  Set<String> missingExecutors(Set<String> ids);

  /** Takes a stage out of what is served; its running tasks go on. */
  void park(Work work);

  /** Puts it back. */
  void unpark(Work work);

  /** Drops what is kept for parked stages that have ended; false when nothing is kept any more. */
  boolean forgetEnded();

  void setPriority(Work work, int priority);

  /** The scheduler looks again for tasks to place. */
  void revive();

  List<ExecutorView> executors();

  /** Asks for so many executors in all; "" or why not. May wait for the cluster. */
  String setTarget(int count);

  /** As it was before the first setTarget; "" or why not. */
  String restoreTarget();

  /** How many are asked for now; -1 where it is not known. */
  int askedFor();

  /** Executors leave once their running tasks have ended; answers those that will. */
  List<String> retire(List<String> ids);

  /** True where an executor can be told to leave while tasks run on it. */
  boolean canRetireBusy();

  /** Those that hold what would be lost with them: cached data and shuffle output, not copies. */
  Set<String> withBlocks();

  /** Tasks that an executor has room for at once; 0 where that is not known. */
  int slots(ExecutorView executor);

  /** True while a job waits outside because its barrier stage did not find slots enough. */
  boolean hasBarrierTurnedAway();

  /** A stage's tasks, in the hands of the scheduler. */
  interface Work {
    int stage();

    int attempt();

    int tasks();

    int running();

    int finished();

    int priority();

    int firstPriority();

    boolean isParked();

    /** Tasks that have to start at once; 0 where it is no barrier stage. */
    int barrierSlots();
  }

  /** An executor as it is seen now. */
  final class ExecutorView {
    final String id;
    final String host;
    final int cores;
    final int running;
    /** Nothing runs there by any count: the scheduler's is ahead of what the application tells. */
    final boolean isQuiet;
    final boolean leaving;
    /** Shuffle output it has written: what would be lost, or moved, with it. */
    final long shuffleBytes;

    ExecutorView(
        String id,
        String host,
        int cores,
        int running,
        boolean isQuiet,
        boolean leaving,
        long shuffleBytes) {
      this.id = id;
      this.host = host;
      this.cores = cores;
      this.running = running;
      this.isQuiet = isQuiet;
      this.leaving = leaving;
      this.shuffleBytes = shuffleBytes;
    }
  }
}
