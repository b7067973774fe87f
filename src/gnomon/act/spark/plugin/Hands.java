package gnomon.spark;

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

  /** Takes a stage out of what is served; its running tasks go on. */
  void park(Work work);

  /** Puts it back. */
  void unpark(Work work);

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

  /** Those that hold blocks which would be lost with them: cached data, not copies of a broadcast. */
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
  }

  /** An executor as it is seen now. */
  final class ExecutorView {
    final String id;
    final String host;
    final int cores;
    final int running;
    final boolean leaving;
    /** Shuffle output it has written: what would be lost, or moved, with it. */
    final long shuffleBytes;

    ExecutorView(
        String id, String host, int cores, int running, boolean leaving, long shuffleBytes) {
      this.id = id;
      this.host = host;
      this.cores = cores;
      this.running = running;
      this.leaving = leaving;
      this.shuffleBytes = shuffleBytes;
    }
  }
}
