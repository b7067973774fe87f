package gnomon.spark;

import gnomon.spark.SchedulerAccess.TaskSetView;
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
 * <p>A request is for a stage, not for one attempt of it: what is submitted later under the same
 * number is held as well. Two rules take precedence over every request: one stage is always left to run, and
 * when nothing runs a held one is let go. One that was let go because the others could not start is
 * not held again before one of them has run.
 */
final class Stages {
  private static final String KEPT = "kept: nothing else would run";
  private static final String EXCUSED = "let go: the others could not start, and have not run since";

  private final SchedulerAccess access;
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
  /** There is, or was until the last look, a request, or something kept for one that was met. */
  private boolean isTouched;

  Stages(SchedulerAccess access, LongSupplier clock, Settings settings) {
    this.access = access;
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

  /** "" where a request to hold is met or will be, else why it is not. */
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
   * Forgets requests for stages that no active job has. Who is known is asked in here: with an older
   * answer a request for a stage that has come up since would be forgotten too.
   */
  synchronized void forgetAllBut(Supplier<Set<Integer>> whoIsKnown) {
    Set<Integer> known = whoIsKnown.get();
    toHold.retainAll(known);
    toOrder.keySet().retainAll(known);
    excused.retainAll(known);
  }

  /** Brings the scheduler in line with the requests, as far as the rules let it. */
  synchronized void look() {
    if (!isTouched) {
      return;
    }
    if (access.locked(this::bringInLine)) {
      access.reviveOffers();
    }
    boolean isSomethingKept = access.locked(access::forgetEnded);
    isTouched = isActive() || !excused.isEmpty() || isSomethingKept;
  }

  /** Everything as Spark had it. */
  synchronized void releaseAll() {
    toHold.clear();
    toOrder.clear();
    kept = Collections.emptySet();
    excused.clear();
    idleSince = stuckSince = Long.MIN_VALUE;
    access.locked(
        () -> {
          for (TaskSetView taskSet : access.taskSets()) {
            if (taskSet.isHeld()) {
              access.release(taskSet);
            }
            if (taskSet.priority() != taskSet.firstPriority()) {
              access.setPriority(taskSet, taskSet.firstPriority());
            }
          }
          return access.forgetEnded();
        });
    access.reviveOffers();
  }

  private boolean bringInLine() {
    boolean changed = false;
    for (TaskSetView taskSet : access.taskSets()) {
      int wanted = toOrder.getOrDefault(taskSet.stage(), taskSet.firstPriority());
      if (taskSet.priority() != wanted) {
        access.setPriority(taskSet, wanted);
        changed = true;
      }
    }
    // Listed again: the order may just have changed.
    List<TaskSetView> taskSets = access.taskSets();
    if (hasOneRunSince(taskSets)) {
      excused.clear();
    }
    List<TaskSetView> served = new ArrayList<>();
    List<TaskSetView> held = new ArrayList<>();
    List<TaskSetView> newlyHeld = new ArrayList<>();
    for (TaskSetView taskSet : taskSets) {
      boolean wanted = toHold.contains(taskSet.stage()) && !excused.contains(taskSet.stage());
      if (taskSet.isHeld() && !wanted) {
        access.release(taskSet);
        changed = true;
        served.add(taskSet);
      } else if (taskSet.isHeld()) {
        held.add(taskSet);
      } else if (wanted) {
        newlyHeld.add(taskSet);
      } else {
        served.add(taskSet);
      }
    }
    keepOne(served, newlyHeld);
    for (TaskSetView taskSet : newlyHeld) {
      access.hold(taskSet);
      held.add(taskSet);
    }
    return letOneGo(served, held) || changed;
  }

  /** Of stages that are all to be held the first one runs on. */
  private void keepOne(List<TaskSetView> served, List<TaskSetView> newlyHeld) {
    kept = Collections.emptySet();
    if (served.isEmpty() && !newlyHeld.isEmpty()) {
      TaskSetView first = newlyHeld.remove(0);
      served.add(first);
      kept = Collections.singleton(first.stage());
    }
  }

  private boolean letOneGo(List<TaskSetView> served, List<TaskSetView> held) {
    int running = 0;
    for (TaskSetView taskSet : served) {
      running += taskSet.running();
    }
    for (TaskSetView taskSet : held) {
      running += taskSet.running();
    }
    boolean isIdle = !held.isEmpty() && served.isEmpty() && running == 0;
    boolean isStuck = !held.isEmpty() && !served.isEmpty() && running == 0 && hasExecutors();
    idleSince = isIdle ? since(idleSince) : Long.MIN_VALUE;
    stuckSince = isStuck ? since(stuckSince) : Long.MIN_VALUE;
    if (isIdle && clock.getAsLong() - idleSince >= settings.idleNs) {
      TaskSetView first = held.get(0);
      access.release(first);
      kept = Collections.singleton(first.stage());
      letGo++;
      idleSince = Long.MIN_VALUE;
      return true;
    }
    if (isStuck && clock.getAsLong() - stuckSince >= settings.stuckNs) {
      // Those served cannot start, whatever the reason: the request is suspended until one of them has.
      TaskSetView first = held.get(0);
      excused.add(first.stage());
      access.release(first);
      finishedThen.clear();
      noteFinished(served);
      noteFinished(held);
      letGo++;
      stuckSince = Long.MIN_VALUE;
      return true;
    }
    return false;
  }

  private void noteFinished(List<TaskSetView> taskSets) {
    for (TaskSetView taskSet : taskSets) {
      if (!excused.contains(taskSet.stage())) {
        finishedThen.put(taskSet.stage(), taskSet.finished());
      }
    }
  }

  /** True when a stage that was not let go itself has run since, or has ended. */
  private boolean hasOneRunSince(List<TaskSetView> taskSets) {
    Set<Integer> ended = new HashSet<>(finishedThen.keySet());
    for (TaskSetView taskSet : taskSets) {
      ended.remove(taskSet.stage());
      boolean hasRun =
          taskSet.running() > 0 || taskSet.finished() > finishedThen.getOrDefault(taskSet.stage(), 0);
      if (hasRun && !excused.contains(taskSet.stage())) {
        return true;
      }
    }
    return !ended.isEmpty();
  }

  private long since(long before) {
    return before == Long.MIN_VALUE ? clock.getAsLong() : before;
  }

  private boolean hasExecutors() {
    for (SchedulerAccess.ExecutorView executor : access.executors()) {
      if (!executor.leaving) {
        return true;
      }
    }
    return false;
  }
}
