package gnomon.spark;

import gnomon.spark.Hands.Work;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/**
 * Which stages wait and in which order the others are served.
 *
 * <p>A wish is for a stage, not for one attempt of it: what is submitted later under the same
 * number is held as well. Two rules stand above every wish: one stage is always left to run, and
 * when nothing runs a held one is let go. One that was let go because the others could not start is
 * not held again before one of them has run.
 */
final class Stages {
  private static final String KEPT = "kept: nothing else would run";
  private static final String EXCUSED = "let go: the others could not start, and have not run since";

  private final Hands hands;
  private final LongSupplier clock;
  private final Settings settings;
  private final Set<Integer> toHold = new HashSet<>();
  private final Map<Integer, Integer> toOrder = new HashMap<>();
  private Set<Integer> kept = Collections.emptySet();
  /** Let go because those served were stuck. */
  private final Set<Integer> excused = new HashSet<>();
  /** Tasks that each of the others had finished by then. */
  private final Map<Integer, Integer> finishedThen = new HashMap<>();
  private long idleSince = Long.MIN_VALUE;
  private long stuckSince = Long.MIN_VALUE;
  private long letGo;
  /** There is, or was until the last look, a wish or something kept for one that was met. */
  private boolean isTouched;

  Stages(Hands hands, LongSupplier clock, Settings settings) {
    this.hands = hands;
    this.clock = clock;
    this.settings = settings;
  }

  synchronized void hold(int stage) {
    isTouched = true;
    toHold.add(stage);
  }

  synchronized void release(int stage) {
    toHold.remove(stage);
  }

  /** A priority of null is that which Spark gave. */
  synchronized void order(int stage, Integer priority) {
    isTouched = true;
    if (priority == null) {
      toOrder.remove(stage);
    } else {
      toOrder.put(stage, priority);
    }
  }

  synchronized boolean isWanted(int stage) {
    return toHold.contains(stage);
  }

  /** "" where a wish to hold is met or will be, else why it is not. */
  synchronized String whyNotHeld(int stage) {
    if (toHold.contains(stage) && excused.contains(stage)) {
      return EXCUSED;
    }
    return kept.contains(stage) ? KEPT : "";
  }

  synchronized boolean isActive() {
    return !toHold.isEmpty() || !toOrder.isEmpty();
  }

  /** How often a held stage was let go because nothing ran. */
  synchronized long letGo() {
    return letGo;
  }

  /**
   * Forgets wishes for stages that no active job has. Who is known is asked in here: with an older
   * answer a wish for a stage that has come up since would be forgotten too.
   */
  synchronized void forgetAllBut(Supplier<Set<Integer>> whoIsKnown) {
    Set<Integer> known = whoIsKnown.get();
    toHold.retainAll(known);
    toOrder.keySet().retainAll(known);
    excused.retainAll(known);
  }

  /** Brings the scheduler in line with the wishes, as far as the rules let it. */
  synchronized void look() {
    if (!isTouched) {
      return;
    }
    if (hands.locked(this::bringInLine)) {
      hands.revive();
    }
    boolean isSomethingKept = hands.locked(hands::forgetEnded);
    isTouched = isActive() || !excused.isEmpty() || isSomethingKept;
  }

  /** Everything as Spark had it. */
  synchronized void releaseAll() {
    toHold.clear();
    toOrder.clear();
    kept = Collections.emptySet();
    excused.clear();
    idleSince = stuckSince = Long.MIN_VALUE;
    hands.locked(
        () -> {
          for (Work work : hands.works()) {
            if (work.isParked()) {
              hands.unpark(work);
            }
            if (work.priority() != work.firstPriority()) {
              hands.setPriority(work, work.firstPriority());
            }
          }
          return hands.forgetEnded();
        });
    hands.revive();
  }

  private boolean bringInLine() {
    boolean changed = false;
    for (Work work : hands.works()) {
      int wanted = toOrder.getOrDefault(work.stage(), work.firstPriority());
      if (work.priority() != wanted) {
        hands.setPriority(work, wanted);
        changed = true;
      }
    }
    // Listed again: the order may just have changed.
    List<Work> works = hands.works();
    if (hasOneRunSince(works)) {
      excused.clear();
    }
    List<Work> served = new ArrayList<>();
    List<Work> parked = new ArrayList<>();
    List<Work> toPark = new ArrayList<>();
    for (Work work : works) {
      boolean wanted = toHold.contains(work.stage()) && !excused.contains(work.stage());
      if (work.isParked() && !wanted) {
        hands.unpark(work);
        changed = true;
        served.add(work);
      } else if (work.isParked()) {
        parked.add(work);
      } else if (wanted) {
        toPark.add(work);
      } else {
        served.add(work);
      }
    }
    keepOne(served, toPark);
    for (Work work : toPark) {
      hands.park(work);
      parked.add(work);
    }
    return letOneGo(served, parked) || changed;
  }

  /** Of stages that are all to be held the first one runs on. */
  private void keepOne(List<Work> served, List<Work> toPark) {
    kept = Collections.emptySet();
    if (served.isEmpty() && !toPark.isEmpty()) {
      Work first = toPark.remove(0);
      served.add(first);
      kept = Collections.singleton(first.stage());
    }
  }

  private boolean letOneGo(List<Work> served, List<Work> parked) {
    int running = 0;
    for (Work work : served) {
      running += work.running();
    }
    for (Work work : parked) {
      running += work.running();
    }
    boolean isIdle = !parked.isEmpty() && served.isEmpty() && running == 0;
    boolean isStuck = !parked.isEmpty() && !served.isEmpty() && running == 0 && hasExecutors();
    idleSince = isIdle ? since(idleSince) : Long.MIN_VALUE;
    stuckSince = isStuck ? since(stuckSince) : Long.MIN_VALUE;
    if (isIdle && clock.getAsLong() - idleSince >= settings.idleNs) {
      Work first = parked.get(0);
      hands.unpark(first);
      kept = Collections.singleton(first.stage());
      letGo++;
      idleSince = Long.MIN_VALUE;
      return true;
    }
    if (isStuck && clock.getAsLong() - stuckSince >= settings.stuckNs) {
      // Those served cannot start, whatever the reason: the wish rests until one of them has.
      Work first = parked.get(0);
      excused.add(first.stage());
      hands.unpark(first);
      finishedThen.clear();
      noteFinished(served);
      noteFinished(parked);
      letGo++;
      stuckSince = Long.MIN_VALUE;
      return true;
    }
    return false;
  }

  private void noteFinished(List<Work> works) {
    for (Work work : works) {
      if (!excused.contains(work.stage())) {
        finishedThen.put(work.stage(), work.finished());
      }
    }
  }

  /** True when a stage that was not let go itself has run since, or has ended. */
  private boolean hasOneRunSince(List<Work> works) {
    Set<Integer> ended = new HashSet<>(finishedThen.keySet());
    for (Work work : works) {
      ended.remove(work.stage());
      boolean hasRun =
          work.running() > 0 || work.finished() > finishedThen.getOrDefault(work.stage(), 0);
      if (hasRun && !excused.contains(work.stage())) {
        return true;
      }
    }
    return !ended.isEmpty();
  }

  private long since(long before) {
    return before == Long.MIN_VALUE ? clock.getAsLong() : before;
  }

  private boolean hasExecutors() {
    for (Hands.ExecutorView executor : hands.executors()) {
      if (!executor.leaving) {
        return true;
      }
    }
    return false;
  }
}
