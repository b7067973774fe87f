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
  private final Consumer<Throwable> onFailure;
  private final ExecutorService worker =
      Executors.newSingleThreadExecutor(Daemons.named("gnomon-quota"));
  private final Set<String> retired = new HashSet<>();
  private volatile Integer target;
  /** There was a target of ours, and what was before has yet to be given back. */
  private volatile boolean isOwed;
  private volatile boolean isLooking;

  Quota(Hands hands, Consumer<Throwable> onFailure) {
    this.hands = hands;
    this.onFailure = onFailure;
  }

  /** What is asked for by us; null where nothing is. */
  Integer target() {
    return target;
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
    return worker.submit(this::giveBack);
  }

  /** Sees to what came up since: executors above the target, a target not yet given back. */
  void look() {
    if ((target == null && !isOwed) || isLooking) {
      return;
    }
    isLooking = true;
    worker.submit(
        () -> {
          try {
            giveBack();
            retireSurplus();
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
    String why = hands.setTarget(count);
    if (why.isEmpty()) {
      retireSurplus();
    }
    return why;
  }

  private String giveBack() {
    if (!isOwed || target != null) {
      return "";
    }
    String why = hands.restoreTarget();
    // A cluster that did not answer is asked again at the next look.
    isOwed = !why.isEmpty();
    return why;
  }

  private void retireSurplus() {
    Integer wanted = target;
    if (wanted == null) {
      return;
    }
    List<ExecutorView> staying = new ArrayList<>();
    Set<String> known = new HashSet<>();
    for (ExecutorView executor : hands.executors()) {
      known.add(executor.id);
      if (!executor.leaving && !retired.contains(executor.id)) {
        staying.add(executor);
      }
    }
    retired.retainAll(known);
    int surplus = staying.size() - wanted;
    if (surplus <= 0) {
      return;
    }
    // Idle ones first, then those that take least with them, the youngest among equals.
    staying.sort(
        Comparator.<ExecutorView>comparingInt(executor -> executor.running)
            .thenComparingLong(executor -> executor.shuffleBytes)
            .thenComparing(executor -> executor.id, Comparator.comparingInt(Quota::age).reversed()));
    List<String> leaving = new ArrayList<>();
    for (ExecutorView executor : staying.subList(0, surplus)) {
      if (hands.canRetireBusy() || (executor.running == 0 && executor.shuffleBytes == 0)) {
        leaving.add(executor.id);
      }
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
