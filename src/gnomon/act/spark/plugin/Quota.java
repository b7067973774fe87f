package gnomon.spark;

import gnomon.spark.SchedulerAccess.ExecutorView;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.LongSupplier;

/**
 * How many executors there may be. A cluster may take its time to answer, so everything here
 * happens on a thread of its own and nobody else waits for long.
 */
final class Quota {
  private static final long PATIENCE_MS = 5_000;
  /** Two looks are further apart than this. */
  private static final long QUIET_NS = TimeUnit.MILLISECONDS.toNanos(500);
  private static final String OVERTAKEN = "superseded by a later request";

  private final SchedulerAccess access;
  private final MinExecutors minimum;
  private final LongSupplier clock;
  private final Consumer<Throwable> onFailure;
  private final ExecutorService worker;
  private final Set<String> retired = new HashSet<>();
  /** Executors with nothing to lose, and since when they were seen so at every look. */
  private final Map<String, Long> freeSince = new HashMap<>();
  private volatile Integer target;
  /** Something was asked for, and what was before has yet to be given back. The worker's to set. */
  private volatile boolean isOwed;
  private volatile boolean isLooking;
  /** Why more than the target is asked for. */
  private volatile String above = "";
  /** What was last asked for, and agreed to; null where that is nothing of ours. */
  private Integer asked;

  Quota(
      SchedulerAccess access,
      MinExecutors minimum,
      LongSupplier clock,
      ExecutorService worker,
      Consumer<Throwable> onFailure) {
    this.access = access;
    this.minimum = minimum;
    this.clock = clock;
    this.worker = worker;
    this.onFailure = onFailure;
  }

  /** The thread that waits for the cluster. */
  static ExecutorService worker() {
    return Executors.newSingleThreadExecutor(DaemonThreads.named("gnomon-quota"));
  }

  /** What is asked for by us; null where nothing is. */
  Integer target() {
    return target;
  }

  /** Why more executors than the target are left; "" where it is not so. */
  String whyAbove() {
    return target == null ? "" : above;
  }

  /** True while nothing is asked for any more, but the cluster has yet to take that in. */
  boolean isOwed() {
    return isOwed && target == null;
  }

  /** Asks for so many executors; "" or why not. */
  String set(int count) {
    target = count;
    return within(worker.submit(() -> move(count)));
  }

  /** As it was; "" or why not. */
  String restore() {
    return within(restoreSoon());
  }

  /** The same, without waiting for it. */
  Future<String> restoreSoon() {
    target = null;
    return worker.submit(this::giveBack);
  }

  /**
   * Sees to what came up since: executors above the target, a target not yet given back, a barrier
   * stage that came or went.
   */
  void look() {
    if ((target == null && !isOwed) || isLooking) {
      return;
    }
    isLooking = true;
    worker.submit(
        () -> {
          try {
            giveBack();
            bringInLine();
          } catch (Throwable failure) {
            onFailure.accept(failure);
          } finally {
            isLooking = false;
          }
        });
  }

  void close() {
    worker.shutdownNow();
  }

  private String move(int count) {
    if (!stands(count)) {
      return OVERTAKEN;
    }
    String why = bringInLine();
    return why.isEmpty() ? whyAbove() : why;
  }

  /** False once it was given up or another has come: others set the target meanwhile. */
  private boolean stands(int requested) {
    Integer now = target;
    return now != null && now == requested;
  }

  /** Asks for the target, or for as much above it as has to stay; "" or why not. */
  private String bringInLine() {
    Integer wanted = target;
    if (wanted == null) {
      return "";
    }
    // Before anything is asked: whatever becomes of it, what was before is to be given back.
    isOwed = true;
    MinExecutors.Need need = minimum.now();
    int allowed = Math.max(wanted, need.executors);
    String why = ask(allowed);
    if (!stands(wanted)) {
      return OVERTAKEN;
    }
    above = need.executors > wanted ? need.why : "";
    if (why.isEmpty()) {
      retireSurplus(wanted, allowed);
    }
    return why;
  }

  private String ask(int allowed) {
    if (asked != null && asked == allowed) {
      return "";
    }
    asked = null;
    String why = allowed == MinExecutors.ALL ? access.restoreTarget() : access.setTarget(allowed);
    // A cluster that did not agree is asked again at the next look.
    asked = why.isEmpty() ? allowed : null;
    return why;
  }

  private String giveBack() {
    if (!isOwed || target != null) {
      return "";
    }
    asked = null;
    String why = access.restoreTarget();
    // A cluster that did not answer is asked again at the next look.
    isOwed = !why.isEmpty();
    return why;
  }

  private void retireSurplus(int wanted, int allowed) {
    List<ExecutorView> staying = staying();
    int surplus = staying.size() - allowed;
    if (surplus <= 0) {
      freeSince.clear();
      return;
    }
    // Idle ones first, then those that take least with them, the youngest among equals.
    staying.sort(
        Comparator.<ExecutorView>comparingInt(executor -> executor.running)
            .thenComparingLong(executor -> executor.shuffleBytes)
            .thenComparing(executor -> executor.id, Comparator.comparingInt(Quota::age).reversed()));
    if (!access.canDecommissionBusy()) {
      keepThoseWithNothing(staying);
    }
    List<String> leaving = new ArrayList<>();
    for (ExecutorView executor : staying.subList(0, Math.min(surplus, staying.size()))) {
      leaving.add(executor.id);
    }
    // Who leaves cannot be called back, and the cluster may have taken its time until here.
    if (!leaving.isEmpty() && stands(wanted)) {
      retired.addAll(access.decommission(leaving));
    }
  }

  /** Those that are not being decommissioned. */
  private List<ExecutorView> staying() {
    List<ExecutorView> staying = new ArrayList<>();
    Set<String> known = new HashSet<>();
    for (ExecutorView executor : access.executors()) {
      known.add(executor.id);
      if (!executor.leaving && !retired.contains(executor.id)) {
        staying.add(executor);
      }
    }
    retired.retainAll(known);
    return staying;
  }

  /**
   * What an executor ends with is lost: only those may leave that have nothing. A task that has
   * just ended may have left output that nobody has noted yet, so they have to be seen so twice.
   */
  private void keepThoseWithNothing(List<ExecutorView> executors) {
    executors.removeIf(executor -> !executor.isIdle || executor.shuffleBytes > 0);
    if (!executors.isEmpty()) {
      Set<String> executorsWithBlocks = access.executorsWithBlocks();
      executors.removeIf(executor -> executorsWithBlocks.contains(executor.id));
    }
    Set<String> free = new HashSet<>();
    executors.forEach(executor -> free.add(executor.id));
    freeSince.keySet().retainAll(free);
    long now = clock.getAsLong();
    free.forEach(id -> freeSince.putIfAbsent(id, now));
    executors.removeIf(executor -> now - freeSince.get(executor.id) < QUIET_NS);
  }

  private static int age(String id) {
    try {
      return Integer.parseInt(id);
    } catch (NumberFormatException other) {
      return 0;
    }
  }

  private String within(Future<String> answer) {
    try {
      return answer.get(PATIENCE_MS, TimeUnit.MILLISECONDS);
    } catch (TimeoutException slow) {
      return "asked; the cluster has not answered yet";
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
      return "interrupted";
    } catch (java.util.concurrent.ExecutionException failure) {
      throw new IllegalStateException(failure.getCause());
    }
  }
}
