package gnomon.spark;

import gnomon.spark.Hands.ExecutorView;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

/**
 * How many executors there may be. A cluster may take its time to answer, so everything here
 * happens on a thread of its own and nobody else waits for long.
 */
final class Quota {
  private static final long PATIENCE_MS = 5_000;

  private final Hands hands;
  private final Floor floor;
  private final Consumer<Throwable> onFailure;
  private final ExecutorService worker;
  private final Set<String> retired = new HashSet<>();
  private volatile Integer target;
  /** There was a target of ours, and what was before has yet to be given back. */
  private volatile boolean isOwed;
  private volatile boolean isLooking;
  /** Why more than the target is asked for. */
  private volatile String above = "";
  /** What was last asked for, and agreed to; null where that is nothing of ours. */
  private Integer asked;

  Quota(Hands hands, Floor floor, ExecutorService worker, Consumer<Throwable> onFailure) {
    this.hands = hands;
    this.floor = floor;
    this.worker = worker;
    this.onFailure = onFailure;
  }

  /** The thread that waits for the cluster. */
  static ExecutorService worker() {
    return Executors.newSingleThreadExecutor(Daemons.named("gnomon-quota"));
  }

  /** What is asked for by us; null where nothing is. */
  Integer target() {
    return target;
  }

  /** Why more executors than the target are left; "" where it is not so. */
  String whyAbove() {
    return above;
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
    isOwed |= target != null;
    target = null;
    above = "";
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
    if (target == null || target != count) {
      return "overtaken by a later wish";
    }
    String why = bringInLine();
    return why.isEmpty() ? above : why;
  }

  /** Asks for the target, or for as much above it as has to stay; "" or why not. */
  private String bringInLine() {
    Integer wanted = target;
    if (wanted == null) {
      return "";
    }
    Floor.Need need = floor.now();
    int allowed = Math.max(wanted, need.executors);
    String why = "";
    if (asked == null || asked != allowed) {
      why = allowed == Floor.ALL ? hands.restoreTarget() : hands.setTarget(allowed);
      // A cluster that did not agree is asked again at the next look.
      asked = why.isEmpty() ? allowed : null;
    }
    above = need.executors > wanted ? need.why : "";
    if (why.isEmpty()) {
      retireSurplus(allowed);
    }
    return why;
  }

  private String giveBack() {
    if (!isOwed || target != null) {
      return "";
    }
    String why = hands.restoreTarget();
    asked = null;
    // A cluster that did not answer is asked again at the next look.
    isOwed = !why.isEmpty();
    return why;
  }

  private void retireSurplus(int allowed) {
    List<ExecutorView> staying = new ArrayList<>();
    Set<String> known = new HashSet<>();
    for (ExecutorView executor : hands.executors()) {
      known.add(executor.id);
      if (!executor.leaving && !retired.contains(executor.id)) {
        staying.add(executor);
      }
    }
    retired.retainAll(known);
    int surplus = staying.size() - allowed;
    if (surplus <= 0) {
      return;
    }
    // Idle ones first, then those that take least with them, the youngest among equals.
    staying.sort(
        Comparator.<ExecutorView>comparingInt(executor -> executor.running)
            .thenComparingLong(executor -> executor.shuffleBytes)
            .thenComparing(executor -> executor.id, Comparator.comparingInt(Quota::age).reversed()));
    if (!hands.canRetireBusy()) {
      // What it ends with is lost: only those leave that have nothing.
      Set<String> withBlocks = hands.withBlocks();
      staying.removeIf(
          executor ->
              executor.running > 0
                  || executor.shuffleBytes > 0
                  || withBlocks.contains(executor.id));
    }
    List<String> leaving = new ArrayList<>();
    for (ExecutorView executor : staying.subList(0, Math.min(surplus, staying.size()))) {
      leaving.add(executor.id);
    }
    if (!leaving.isEmpty()) {
      retired.addAll(hands.retire(leaving));
    }
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
