package gnomon.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.AbstractExecutorService;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.rdd.DeterministicLevel;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.scheduler.cluster.ExecutorInfo;
import org.apache.spark.storage.RDDInfo;
import org.apache.spark.storage.StorageLevel;

/**
 * The rules on a scheduler made of lists, with a clock that is set by hand. Prints a line for each
 * trial: its name, and what went wrong, if something did.
 */
public final class RulesTrial {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long SECOND = 1_000_000_000L;

  private long now;
  private final PretendScheduler access = new PretendScheduler();
  private final ActivityListener activity = new ActivityListener();
  private final Controller controller = controllerWith(new AtOnce());

  private Controller controllerWith(ExecutorService worker) {
    Settings settings = new Settings(10 * SECOND, SECOND / 2, 15 * SECOND);
    return new Controller(access, activity, "app", settings, () -> now, worker);
  }

  /** A thread that is always done with what it is given, so that no trial waits for one. */
  private static final class AtOnce extends AbstractExecutorService {
    public void execute(Runnable task) {
      task.run();
    }

    public void shutdown() {}

    public List<Runnable> shutdownNow() {
      return Collections.emptyList();
    }

    public boolean isShutdown() {
      return false;
    }

    public boolean isTerminated() {
      return false;
    }

    public boolean awaitTermination(long timeout, TimeUnit unit) {
      return true;
    }
  }

  /** Stages that are in a pool or held, executors that are there. */
  private static final class PretendScheduler implements SchedulerAccess {
    final List<PretendTaskSet> taskSets = new ArrayList<>();
    final List<ExecutorView> executors = new ArrayList<>();
    final Map<String, String> capabilities = new LinkedHashMap<>();
    final List<String> retired = new ArrayList<>();
    final Set<String> executorsWithBlocks = new HashSet<>();
    final Set<Integer> endedJobs = new HashSet<>();
    final Set<String> goneExecutors = new HashSet<>();
    /** What is remembered of those parked, until it is told to forget the ended ones. */
    final Set<PretendTaskSet> kept = new HashSet<>();
    /** Killed tasks that still run: their stage is not served any more, and not gone. */
    final Set<PretendTaskSet> dying = new HashSet<>();
    Runnable onSetTarget = () -> {};
    Runnable onRestoreTarget = () -> {};
    Runnable onCapabilities = () -> {};
    RuntimeException onLocked;
    boolean isRejected;
    boolean isUnclear;
    boolean canDecommissionBusy = true;
    int slotsEach = 1;
    int target = -1;
    int refusals;
    RuntimeException onPark;

    PretendScheduler() {
      for (String name : new String[] {"set_target", "decommission", "priority", "hold"}) {
        capabilities.put(name, "");
      }
      capabilities.put("dynamic_ceiling", "off");
    }

    public Map<String, String> capabilities() {
      onCapabilities.run();
      return capabilities;
    }

    public <T> T locked(Supplier<T> action) {
      if (onLocked != null) {
        throw onLocked;
      }
      return action.get();
    }

    public List<TaskSetView> taskSets() {
      List<TaskSetView> sorted = new ArrayList<>(taskSets);
      sorted.sort((a, b) -> a.priority() != b.priority()
          ? Integer.compare(a.priority(), b.priority()) : Integer.compare(a.stage(), b.stage()));
      return sorted;
    }

    public void hold(TaskSetView taskSet) {
      if (onPark != null) {
        throw onPark;
      }
      ((PretendTaskSet) taskSet).isHeld = true;
      kept.add((PretendTaskSet) taskSet);
    }

    public void release(TaskSetView taskSet) {
      ((PretendTaskSet) taskSet).isHeld = false;
    }

    public boolean forgetEnded() {
      kept.removeIf(taskSet -> !dying.contains(taskSet) && !(taskSets.contains(taskSet) && taskSet.isHeld));
      return !kept.isEmpty();
    }

    public Set<Integer> missingJobs(Set<Integer> jobs) {
      Set<Integer> missing = new HashSet<>(jobs);
      missing.retainAll(endedJobs);
      return missing;
    }

    public Set<String> missingExecutors(Set<String> ids) {
      if (isUnclear) {
        throw new IllegalStateException("the scheduler changes it meanwhile");
      }
      Set<String> missing = new HashSet<>(ids);
      missing.retainAll(goneExecutors);
      return missing;
    }

    public void setPriority(TaskSetView taskSet, int priority) {
      ((PretendTaskSet) taskSet).priority = priority;
    }

    public void reviveOffers() {}

    public List<ExecutorView> executors() {
      return new ArrayList<>(executors);
    }

    public String setTarget(int count) {
      onSetTarget.run();
      target = count;
      return "";
    }

    public String restoreTarget() {
      onRestoreTarget.run();
      if (refusals-- > 0) {
        return "not now";
      }
      target = -1;
      return "";
    }

    public int requestedExecutors() {
      return target;
    }

    public List<String> decommission(List<String> ids) {
      retired.addAll(ids);
      return ids;
    }

    public boolean canDecommissionBusy() {
      return canDecommissionBusy;
    }

    public Set<String> executorsWithBlocks() {
      return executorsWithBlocks;
    }

    public int slots(ExecutorView executor) {
      return slotsEach;
    }

    public boolean hasRejectedBarrierJob() {
      return isRejected;
    }

    void executor(String id, int running, long shuffleBytes) {
      executor(id, running, running == 0, shuffleBytes);
    }

    void executor(String id, int running, boolean isIdle, long shuffleBytes) {
      executors.removeIf(executor -> executor.id.equals(id));
      executors.add(new ExecutorView(id, "host", 1, running, isIdle, false, shuffleBytes));
    }
  }

  private static final class PretendTaskSet implements SchedulerAccess.TaskSetView {
    final int stage;
    final int attempt;
    int running;
    int finished;
    int priority;
    int barrierSlots;
    boolean isHeld;

    PretendTaskSet(int stage, int attempt, int running) {
      this.stage = stage;
      this.attempt = attempt;
      this.running = running;
      this.priority = stage;
    }

    public int stage() {
      return stage;
    }

    public int attempt() {
      return attempt;
    }

    public int tasks() {
      return 10;
    }

    public int running() {
      return running;
    }

    public int finished() {
      return finished;
    }

    public int priority() {
      return priority;
    }

    public int firstPriority() {
      return stage;
    }

    public boolean isHeld() {
      return isHeld;
    }

    public int barrierSlots() {
      return barrierSlots;
    }
  }

  // Words for the trials.

  private PretendTaskSet stage(int number, int running) {
    StageInfo info =
        new StageInfo(
            number, 0, "stage", 10, none(), none(), "", null, none(), scala.Option.empty(), 0,
            false, 0);
    beginJob(info, 0L);
    PretendTaskSet taskSet = new PretendTaskSet(number, 0, running);
    access.taskSets.add(taskSet);
    return taskSet;
  }

  /** A job of one barrier stage, as Spark tells of it. */
  private void barrier(int number, int tasks, int profile) {
    StageInfo info = barrierInfo(number, tasks, profile);
    beginJob(info, System.currentTimeMillis());
    activity.onStageSubmitted(new SparkListenerStageSubmitted(info, new Properties()));
  }

  private void beginJob(StageInfo info, long atMs) {
    scala.collection.mutable.ListBuffer<StageInfo> infos =
        new scala.collection.mutable.ListBuffer<>();
    infos.$plus$eq(info);
    activity.onJobStart(
        new SparkListenerJobStart(info.stageId(), atMs, infos.toList(), new Properties()));
  }

  private static StageInfo barrierInfo(int number, int tasks, int profile) {
    scala.collection.mutable.ListBuffer<RDDInfo> data =
        new scala.collection.mutable.ListBuffer<>();
    data.$plus$eq(rdd(false));
    data.$plus$eq(rdd(true));
    return new StageInfo(
        number, 0, "barrier", tasks, data.toList(), none(), "", null, none(), scala.Option.empty(),
        profile, false, 0);
  }

  private static RDDInfo rdd(boolean isBarrier) {
    return new RDDInfo(
        0, "data", 1, StorageLevel.NONE(), isBarrier, none(), "", scala.Option.empty(),
        DeterministicLevel.DETERMINATE());
  }

  private void end(int job) {
    activity.onJobEnd(new SparkListenerJobEnd(job, 1L, null));
  }

  /** What the executors are asked for is seen to once a second. */
  private void expectAsked(int count, String what) {
    pass(1);
    ask("{'op': 'state'}"); // the agent is still there
    expect(access.target == count, what);
  }

  private static <T> scala.collection.immutable.List<T> none() {
    return new scala.collection.mutable.ListBuffer<T>().toList();
  }

  private JsonNode ask(String request) {
    return ask(controller, request);
  }

  private static JsonNode ask(Controller who, String request) {
    try {
      return who.answer(JSON.readTree(request.replace('\'', '"')));
    } catch (java.io.IOException wrong) {
      throw new AssertionError(wrong);
    }
  }

  private JsonNode apply(String wishes) {
    return ask("{'op': 'apply', " + wishes + "}");
  }

  private JsonNode state() {
    return ask("{'op': 'state', 'watch': true}");
  }

  private void pass(double seconds) {
    for (double each = 0; each < seconds - 1e-9; each += 0.1) {
      now += SECOND / 10;
      controller.tick();
    }
  }

  /** A thread that asks, and does not mind how long it takes. */
  private static Thread asking(Controller who, String request) {
    Thread thread = new Thread(() -> ask(who, request));
    thread.start();
    return thread;
  }

  private static void await(CountDownLatch latch) {
    try {
      expect(latch.await(20, TimeUnit.SECONDS), "waited in vain");
    } catch (InterruptedException stopped) {
      throw new AssertionError(stopped);
    }
  }

  private static void await(BooleanSupplier isSo) {
    long deadline = System.nanoTime() + 20 * SECOND;
    while (!isSo.getAsBoolean()) {
      expect(System.nanoTime() < deadline, "waited in vain");
      Thread.yield();
    }
  }

  /** Until it has done all that it was given. */
  private static void drain(ExecutorService worker) {
    try {
      worker.submit(() -> {}).get(20, TimeUnit.SECONDS);
    } catch (Exception failed) {
      throw new AssertionError(failed);
    }
  }

  private static void join(Thread thread) {
    try {
      thread.join(20_000);
    } catch (InterruptedException stopped) {
      throw new AssertionError(stopped);
    }
    expect(!thread.isAlive(), "it has ended");
  }

  private static void expect(boolean isSo, String what) {
    if (!isSo) {
      throw new AssertionError(what);
    }
  }

  private String held() {
    return access.taskSets.stream()
        .filter(taskSet -> taskSet.isHeld)
        .map(taskSet -> String.valueOf(taskSet.stage))
        .collect(Collectors.joining(","));
  }

  // Trials.

  void aLeaseThatRunsOutGivesAllBack() {
    stage(1, 2);
    PretendTaskSet second = stage(2, 0);
    access.executor("0", 1, 0);
    apply("'hold': [2], 'priority': {'2': -9}, 'target': 1");
    expect(held().equals("2") && second.priority == -9 && access.target == 1, "applied");
    pass(9.9);
    expect(held().equals("2"), "held while the lease lasts");
    pass(0.3);
    expect(held().isEmpty() && second.priority == 2, "stages are back");
    expect(access.target == -1, "the target is back");
    expect(state().path("lease_expiries").asInt() == 1, "counted once");
    pass(20);
    expect(state().path("lease_expiries").asInt() == 1, "and not again");
  }

  void whoOnlyWatchesKeepsNoLeaseAlive() {
    stage(1, 2);
    stage(2, 0);
    apply("'hold': [2]");
    for (int look = 0; look < 11; look++) {
      pass(1);
      state();
    }
    expect(held().isEmpty(), "given back");
    apply("'hold': [2]");
    for (int look = 0; look < 30; look++) {
      pass(1);
      ask("{'op': 'state'}");
    }
    expect(held().equals("2"), "who acts keeps it");
  }

  void oneStageIsKeptWhenAllAreToBeHeld() {
    stage(1, 1);
    stage(2, 1);
    stage(3, 0);
    JsonNode answer = apply("'hold': [1, 2, 3]");
    expect(held().equals("2,3"), held());
    expect(answer.at("/items/hold 1").asText().startsWith("kept"), "and said");
    expect(answer.at("/items/hold 2").asText().isEmpty(), "others are fine");
    apply("'priority': {'3': -5}");
    expect(held().equals("2,3"), "one that runs is not exchanged by a priority alone");
  }

  void theMostImportantIsKept() {
    stage(1, 1);
    stage(2, 1);
    apply("'priority': {'2': -5}, 'hold': [1, 2]");
    expect(held().equals("1"), held());
  }

  void aHeldStageIsLetGoWhenNothingRuns() {
    PretendTaskSet first = stage(1, 1);
    stage(2, 0);
    apply("'hold': [2]");
    access.taskSets.remove(first);
    pass(0.3);
    expect(held().equals("2"), "a gap between two stages is no end");
    PretendTaskSet next = stage(3, 1);
    pass(2);
    expect(held().equals("2"), "the next one runs");
    access.taskSets.remove(next);
    pass(0.8);
    expect(held().isEmpty(), "nothing runs: let go");
    expect(state().path("let_go").asInt() == 1, "and counted");
    pass(3);
    expect(held().isEmpty(), "not taken back while it is alone");
    stage(4, 0);
    pass(0.2);
    expect(held().equals("2"), "the wish stands, once another can run");
  }

  void aHeldStageThatRunsOutItsTasksIsNoIdleCluster() {
    PretendTaskSet first = stage(1, 1);
    PretendTaskSet second = stage(2, 3);
    apply("'hold': [2]");
    access.taskSets.remove(first);
    pass(5);
    expect(held().equals("2"), "its own tasks still run");
    second.running = 0;
    pass(0.8);
    expect(held().isEmpty(), "now they do not");
  }

  void aHeldStageIsLetGoWhenTheOthersCannotStart() {
    stage(1, 0);
    stage(2, 0);
    access.executor("0", 0, 0);
    apply("'hold': [2]");
    for (int look = 0; look < 14; look++) {
      pass(1);
      ask("{'op': 'state'}");
    }
    expect(held().equals("2"), "executors may take a while");
    pass(2);
    expect(held().isEmpty(), "stuck: let go");
    pass(1);
    expect(held().isEmpty(), "and not taken back");
  }

  void aStageThatWasLetGoIsNotHeldAgainBeforeTheOthersHaveRun() {
    PretendTaskSet first = stage(1, 0);
    PretendTaskSet second = stage(2, 0);
    PretendTaskSet third = stage(3, 0);
    third.finished = 4;
    access.executor("0", 0, 0);
    for (int look = 0; look < 16; look++) {
      pass(1);
      apply("'hold': [2, 3]");
    }
    expect(held().equals("3"), "the first of them is let go: " + held());
    second.running = 1;
    String why = "";
    for (int look = 0; look < 20; look++) {
      pass(1);
      why = apply("'hold': [2, 3]").at("/items/hold 2").asText();
    }
    expect(held().equals("3"), "asked again and again, it still runs: " + held());
    expect(why.startsWith("let go"), why);
    expect(state().at("/stages/1/hold_requested").asBoolean(), "the wish is known");
    expect(state().path("let_go").asInt() == 1, "let go once");
    first.finished = 1;
    pass(0.1);
    expect(held().equals("2,3"), "another has run: the wish is met again");
    expect(apply("'hold': [2]").at("/items/hold 2").asText().isEmpty(), "nothing to say");
  }

  void thoseLetGoByTurnsDoNotEndEachOthersRest() {
    stage(1, 0);
    PretendTaskSet second = stage(2, 0);
    stage(3, 0);
    stage(4, 0);
    access.executor("0", 0, 0);
    for (int look = 0; look < 32; look++) {
      pass(1);
      apply("'hold': [2, 3, 4]");
    }
    expect(held().equals("4"), "two are let go, one after the other: " + held());
    access.taskSets.remove(second);
    end(2);
    pass(0.2);
    expect(held().equals("4"), "the end of one that was let go changes nothing: " + held());
    access.taskSets.remove(0);
    end(1);
    pass(0.2);
    expect(held().equals("4"), "one is kept");
    stage(5, 1);
    pass(0.2);
    expect(held().equals("3,4"), "now something else runs: " + held());
  }

  void withoutExecutorsNobodyIsStuck() {
    stage(1, 0);
    stage(2, 0);
    apply("'hold': [2]");
    for (int look = 0; look < 40; look++) {
      pass(1);
      ask("{'op': 'state'}");
    }
    expect(held().equals("2"), "it waits as the other does");
  }

  void laterAttemptsAndLaterStagesAreHeldToo() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    apply("'hold': [2]");
    access.taskSets.remove(second);
    access.taskSets.add(new PretendTaskSet(2, 1, 0));
    pass(0.1);
    expect(held().equals("2"), "the second attempt");
    PretendTaskSet third = stage(3, 0);
    access.taskSets.remove(third);
    expect(apply("'hold': [3]").at("/items/hold 3").asText().isEmpty(), "not yet submitted");
    access.taskSets.add(third);
    pass(0.1);
    expect(third.isHeld, "held when it is");
  }

  void releasingIsIdempotentAndOrderIsGivenBack() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    apply("'hold': [2], 'priority': {'2': -1}");
    apply("'hold': [2], 'priority': {'2': -1}");
    expect(held().equals("2") && second.priority == -1, "the same again");
    apply("'release': [2]");
    apply("'release': [2]");
    expect(held().isEmpty() && second.priority == -1, "only what was said");
    apply("'priority': {'2': null}");
    expect(second.priority == 2, "Spark's own");
    expect(apply("'hold': [99]").at("/items/hold 99").asText().contains("no active job"), "unknown");
  }

  void aFailureInsideGivesAllBack() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    stage(3, 0);
    apply("'hold': [2], 'target': 1");
    access.onPark = new IllegalStateException("broken");
    JsonNode answer = apply("'hold': [3]");
    expect(!answer.path("ok").asBoolean(), "refused");
    expect(answer.path("degraded").asText().equals("IllegalStateException: broken"), "and why");
    expect(!second.isHeld, "what was held before is back");
    expect(access.target == -1, "the target too");
    expect(apply("'priority': {'2': 1}").path("error").asText().contains("release first"), "closed");
    expect(state().path("degraded").asText().contains("broken"), "seen");
    access.onPark = null;
    ask("{'op': 'release'}");
    expect(apply("'hold': [2]").path("ok").asBoolean(), "a second chance");
    access.onPark = new IllegalStateException("broken");
    for (int failure = 0; failure < 2; failure++) {
      apply("'hold': [3]");
      ask("{'op': 'release'}");
    }
    access.onPark = null;
    expect(!apply("'hold': [2]").path("ok").asBoolean(), "no fourth one");
    expect(held().isEmpty(), "and nothing is held");
  }

  void aFailureOfTheWatchdogGivesAllBack() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    PretendTaskSet third = stage(3, 0);
    access.taskSets.remove(third);
    apply("'hold': [2, 3]");
    access.onPark = new LinkageErrorInside();
    access.taskSets.add(third);
    pass(0.1);
    expect(!second.isHeld && !third.isHeld, "all back");
    expect(!state().path("degraded").asText().isEmpty(), "said");
  }

  void aFailureThatCannotEvenBeToldLeavesTheWatchdogAlive() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    apply("'hold': [2], 'target': 1");
    access.onLocked =
        new IllegalStateException() {
          @Override
          public String getMessage() {
            throw new OutOfMemoryError("again");
          }
        };
    pass(0.1);
    expect(access.target == -1, "the target is back although the scheduler fails");
    access.onLocked = null;
    pass(0.1);
    expect(!second.isHeld, "and the stage when it can be");
    expect(state().path("degraded").asText().startsWith("an unknown failure"), "said");
  }

  void aFailureInTheMidstOfAWishEndsIt() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    PretendTaskSet third = stage(3, 0);
    apply("'hold': [2]");
    access.onCapabilities =
        () -> {
          access.onCapabilities = () -> {};
          access.onLocked = new IllegalStateException("broken");
          controller.tick();
          access.onLocked = null;
        };
    JsonNode answer = apply("'hold': [3], 'target': 1");
    expect(!answer.path("ok").asBoolean(), "refused");
    expect(answer.path("degraded").asText().contains("broken"), "and why");
    expect(!second.isHeld && !third.isHeld && access.target == -1, "nothing is left of it");
    expect(!state().at("/stages/2/hold_requested").asBoolean(), "not even the wish");
  }

  void whoIsKnownIsAskedWhileNoWishCanCome() {
    Stages stages = new Stages(access, () -> now, new Settings(SECOND, SECOND, SECOND));
    stages.hold(1);
    stages.forgetAllBut(
        () -> {
          expect(Thread.holdsLock(stages), "a wish that comes now would be lost");
          return Collections.singleton(2);
        });
    expect(!stages.isWanted(1), "forgotten");
  }

  void nothingIsKeptOfStagesThatEndWhileHeld() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    PretendTaskSet third = stage(3, 1);
    apply("'hold': [2, 3]");
    access.taskSets.remove(second);
    pass(0.1);
    expect(access.kept.equals(Collections.singleton(third)), "the other is still held");
    access.taskSets.remove(third);
    access.dying.add(third);
    end(2);
    end(3);
    pass(1);
    expect(access.kept.size() == 1, "its killed tasks still run");
    access.dying.clear();
    pass(0.1);
    expect(access.kept.isEmpty(), "looked at until they have ended");
  }

  private static final class LinkageErrorInside extends RuntimeException {
    LinkageErrorInside() {
      super(new NoSuchMethodError("gone"));
    }
  }

  void idleExecutorsLeaveFirstAndTakeLeastAlong() {
    stage(1, 2);
    access.executor("0", 1, 500);
    access.executor("1", 0, 10);
    access.executor("2", 1, 500);
    access.executor("3", 0, 900);
    access.executor("4", 0, 900);
    apply("'target': 4");
    expect(access.retired.equals(Arrays.asList("1")), access.retired.toString());
    apply("'target': 1");
    expect(access.retired.equals(Arrays.asList("1", "4", "3", "2")), access.retired.toString());
    apply("'target': 1");
    pass(3);
    expect(access.retired.size() == 4, "nobody is told twice");
  }

  void withoutDecommissionOnlyWhoHasNothingLeaves() {
    access.canDecommissionBusy = false;
    stage(1, 1);
    access.executor("0", 1, 0);
    access.executor("1", 0, 900);
    access.executor("2", 0, 0);
    apply("'target': 1");
    apply("'target': 2");
    apply("'target': 1");
    expect(access.retired.isEmpty(), "seen idle once only, as often as it was asked");
    pass(1);
    expect(access.retired.equals(Collections.singletonList("2")), access.retired.toString());
  }

  void withoutDecommissionWhoMayHaveJustWorkedStays() {
    access.canDecommissionBusy = false;
    access.executor("0", 1, 0);
    access.executor("1", 0, false, 0);
    apply("'target': 1");
    pass(3);
    expect(access.retired.isEmpty(), "a task was told to run there, and its end was not");
    access.executor("1", 0, 0);
    pass(1);
    access.executor("1", 1, 0);
    pass(1);
    access.executor("1", 0, 0);
    pass(1);
    expect(access.retired.isEmpty(), "idle now and then is not idle twice in a row");
    pass(1);
    expect(access.retired.equals(Collections.singletonList("1")), access.retired.toString());
  }

  void withoutDecommissionWhoHoldsBlocksStays() {
    access.canDecommissionBusy = false;
    stage(1, 1);
    access.executor("0", 1, 0);
    access.executor("1", 0, 0);
    access.executor("2", 0, 0);
    access.executorsWithBlocks.add("2");
    apply("'target': 2");
    pass(2);
    expect(access.retired.equals(Collections.singletonList("1")), "not the youngest, which caches");
    apply("'target': 1");
    pass(2);
    expect(access.retired.size() == 1, "it stays although it is one too many");
    access.executorsWithBlocks.clear();
    pass(2);
    expect(access.retired.contains("2"), "until its data are no longer kept");
  }

  void aBarrierStageKeepsTheExecutorsItNeeds() {
    access.slotsEach = 2;
    for (int each = 0; each < 4; each++) {
      access.executor(String.valueOf(each), 0, 0);
    }
    barrier(1, 5, 0);
    String why = apply("'target': 1").at("/items/target").asText();
    expect(access.target == 3, "five tasks, two on each: " + access.target);
    expect(why.equals("3 executors are left to a barrier stage that starts 5 tasks at once"), why);
    expect(access.retired.size() == 1, "one of four leaves");
    expect(state().path("target").asInt() == 1, "the wish is known");
    expect(state().path("above_target").asText().equals(why), "and why it is not met");
    expect(apply("'target': 1").at("/items/target").asText().equals(why), "as often as it is asked");
    expect(apply("'target': 3").at("/items/target").asText().isEmpty(), "enough is enough");
    apply("'target': 1");
    barrier(2, 7, 0);
    expectAsked(4, "a wider one");
    end(2);
    expectAsked(3, "has gone");
    end(1);
    expectAsked(1, "the quota is met");
    expect(state().path("above_target").asText().isEmpty(), "and nothing to say");
    barrier(3, 5, 0);
    expectAsked(3, "another");
    ask("{'op': 'release'}");
    expect(access.target == -1, "given back as ever");
  }

  void whatABarrierStageNeedsMayNotBeKnown() {
    access.executor("0", 0, 0);
    access.executor("1", 0, 0);
    barrier(1, 2, 7);
    String why = apply("'target': 1").at("/items/target").asText();
    expect(access.target == -1 && access.retired.isEmpty(), "another profile: all are left to it");
    expect(why.contains("not known"), why);
    end(1);
    expectAsked(1, "the quota is met");
    access.slotsEach = 0;
    barrier(2, 1, 0);
    expectAsked(-1, "tasks that take more than cores");
  }

  void aJobThatBarrierSlotsKeepOutHasAllExecutorsBack() {
    access.executor("0", 0, 0);
    stage(1, 1);
    apply("'target': 1");
    expect(access.target == 1, "a quota");
    access.isRejected = true;
    expectAsked(-1, "given back while a job waits outside");
    expect(state().path("above_target").asText().contains("waits for slots"), "said");
    access.executor("1", 0, 0);
    access.isRejected = false;
    pass(2);
    expect(access.target == -1 && access.retired.isEmpty(), "not taken before the job is known");
    barrier(2, 2, 0);
    expectAsked(2, "now it is");
    end(2);
    expectAsked(1, "the quota is met again");
    expect(access.retired.equals(Collections.singletonList("1")), access.retired.toString());
  }

  void aBarrierStageThatHasEndedNeedsNothing() {
    barrier(1, 5, 0);
    Set<Integer> none = Collections.emptySet();
    long nowMs = System.currentTimeMillis();
    expect(activity.barrierSlots(none, nowMs) == 5, "it runs");
    StageInfo info =
        new StageInfo(
            1, 0, "barrier", 5, none(), none(), "", null, none(), scala.Option.empty(), 0, false,
            0);
    activity.onStageCompleted(new SparkListenerStageCompleted(info));
    expect(activity.barrierSlots(none, nowMs) == 0, "its job goes on, without it");
    stage(2, 1);
    expect(activity.barrierSlots(none, nowMs) == 0, "an ordinary stage");
    expect(activity.barrierSlots(Collections.singleton(1), nowMs) == 5, "it runs once more");
  }

  // What Spark has told is not all of it: it drops events.

  void aBarrierStageWhoseSubmissionWasNotToldKeepsItsExecutors() {
    access.executor("0", 0, 0);
    beginJob(barrierInfo(1, 3, 0), 0L);
    PretendTaskSet taskSet = new PretendTaskSet(1, 0, 0);
    access.taskSets.add(taskSet);
    apply("'target': 1");
    expect(access.target == 3, "ready for long and never submitted, but its tasks are there");
    access.taskSets.remove(taskSet);
    expectAsked(1, "a stage without tasks was computed before");
    PretendTaskSet untold = new PretendTaskSet(2, 0, 0);
    untold.barrierSlots = 4;
    access.taskSets.add(untold);
    expectAsked(4, "the scheduler knows of one whose job was not told at all");
  }

  void aJobWhoseEndWasNotToldIsForgotten() {
    PretendTaskSet first = stage(1, 1);
    PretendTaskSet second = stage(2, 1);
    barrier(3, 5, 0);
    access.executor("0", 0, 0);
    apply("'hold': [2], 'target': 1");
    expect(access.target == 5, "a barrier stage");
    access.endedJobs.addAll(Arrays.asList(1, 3));
    pass(3.5);
    expect(state().path("jobs").size() == 3, "missing once, the event may be late");
    access.endedJobs.remove(3);
    pass(3);
    access.endedJobs.add(3);
    ask("{'op': 'state'}");
    pass(3);
    expect(state().path("jobs").size() == 3, "missing now and then; one has tasks to run");
    ask("{'op': 'state'}");
    pass(3);
    expect(state().path("jobs").size() == 2, "missing twice in a row");
    expectAsked(1, "and its barrier stage needs nothing any more");
    access.taskSets.remove(first);
    ask("{'op': 'state'}");
    pass(6);
    expect(state().path("jobs").size() == 1, "its tasks are gone");
    expect(second.isHeld || state().at("/let_go").asInt() > 0, "the other is as it was");
    expect(state().path("degraded").asText().isEmpty(), "no failure");
  }

  void executorsThatAreGoneAreForgotten() {
    for (String id : new String[] {"0", "1"}) {
      activity.onExecutorAdded(
          new SparkListenerExecutorAdded(
              0L, id, new ExecutorInfo("host", 1, scala.collection.immutable.Map$.MODULE$.empty())));
    }
    access.goneExecutors.add("1");
    pass(3);
    expect(activity.executors().size() == 2, "it may be coming up");
    pass(3);
    expect(activity.executors().size() == 1 && activity.executors().get(0).id.equals("0"), "gone");
    access.isUnclear = true;
    pass(9);
    expect(state().path("degraded").asText().isEmpty(), "what cannot be compared harms nobody");
  }

  // A cluster that takes its time, on a thread of its own.

  /** It is asked for a target, and answers when it is let. */
  private final class SlowTarget {
    final CountDownLatch asked = new CountDownLatch(1);
    final CountDownLatch answered = new CountDownLatch(1);

    SlowTarget() {
      access.onSetTarget =
          () -> {
            asked.countDown();
            await(answered);
          };
    }
  }

  void aReleaseWhileTheClusterIsSlowRetiresNobody() {
    ExecutorService worker = Quota.worker();
    Controller slow = controllerWith(worker);
    access.executor("0", 0, 0);
    access.executor("1", 0, 0);
    SlowTarget cluster = new SlowTarget();
    Thread caller = asking(slow, "{'op': 'apply', 'target': 1}");
    await(cluster.asked);
    expect(!ask(slow, "{'op': 'state'}").path("owed").asBoolean(), "the wish stands");
    ask(slow, "{'op': 'release'}");
    JsonNode seen = ask(slow, "{'op': 'state'}");
    expect(seen.path("target").isNull() && seen.path("owed").asBoolean(), "owed, and said");
    cluster.answered.countDown();
    join(caller);
    drain(worker);
    expect(access.retired.isEmpty(), "told to leave after the release: " + access.retired);
    expect(access.target == -1, "given back");
    expect(!ask(slow, "{'op': 'state'}").path("owed").asBoolean(), "nothing is owed");
    worker.shutdownNow();
  }

  void aNewerWishWhileTheClusterIsSlowIsTheOneThatCounts() {
    ExecutorService worker = Quota.worker();
    Controller slow = controllerWith(worker);
    for (int each = 0; each < 5; each++) {
      access.executor(String.valueOf(each), 0, 0);
    }
    SlowTarget cluster = new SlowTarget();
    Thread first = asking(slow, "{'op': 'apply', 'target': 1}");
    await(cluster.asked);
    Thread second = asking(slow, "{'op': 'apply', 'target': 4}");
    await(() -> ask(slow, "{'op': 'state'}").path("target").asInt() == 4);
    cluster.answered.countDown();
    join(first);
    join(second);
    expect(access.retired.equals(Collections.singletonList("4")), access.retired.toString());
    expect(access.target == 4, "the newer one");
    worker.shutdownNow();
  }

  void anExpiryTellsWhatIsStillOwed() {
    ExecutorService worker = Quota.worker();
    Controller slow = controllerWith(worker);
    CountDownLatch answered = new CountDownLatch(1);
    access.onRestoreTarget = () -> await(answered);
    ask(slow, "{'op': 'apply', 'target': 4}");
    now += 11 * SECOND;
    slow.tick();
    JsonNode seen = ask(slow, "{'op': 'state', 'watch': true}");
    expect(seen.path("lease_expiries").asInt() == 1 && seen.path("target").isNull(), "expired");
    expect(seen.path("owed").asBoolean(), "the cluster has not answered");
    answered.countDown();
    drain(worker);
    expect(!ask(slow, "{'op': 'state', 'watch': true}").path("owed").asBoolean(), "now it has");
    expect(access.target == -1, "given back");
    worker.shutdownNow();
  }

  void wishesAndReleasesInAnyOrderLeaveNothingBehind() {
    ExecutorService worker = Quota.worker();
    List<Throwable> failures = Collections.synchronizedList(new ArrayList<>());
    Quota quota =
        new Quota(access, new MinExecutors(access, activity, () -> now), () -> now, worker, failures::add);
    for (int round = 0; round < 300; round++) {
      CyclicBarrier start = new CyclicBarrier(2);
      Thread other =
          new Thread(
              () -> {
                meet(start);
                quota.restoreSoon();
              });
      other.start();
      meet(start);
      quota.set(3);
      join(other);
      drain(worker);
      expect((quota.target() == null) == (access.target == -1), "lost in round " + round);
      quota.restore();
    }
    expect(failures.isEmpty(), failures.toString());
    worker.shutdownNow();
  }

  private static void meet(CyclicBarrier barrier) {
    try {
      barrier.await(20, TimeUnit.SECONDS);
    } catch (Exception failed) {
      throw new AssertionError(failed);
    }
  }

  // By name, as Spark's own are reached.

  public static final class PretendManager {
    public int maxNumExecutors = 6;
    public int minNumExecutors = 2;
    public final scala.collection.mutable.HashMap<Object, Object>
        numExecutorsTargetPerResourceProfileId = new scala.collection.mutable.HashMap<>();
  }

  public static final class PretendContext {
    final PretendManager manager = new PretendManager();
    int asked = -1;

    public scala.Option<PretendManager> executorAllocationManager() {
      return scala.Option.apply(manager);
    }

    public boolean requestTotalExecutors(int count, int localityAware, Object hosts) {
      asked = count;
      return true;
    }
  }

  void theCeilingOfDynamicAllocationIsNeverRaised() {
    PretendContext context = new PretendContext();
    PretendManager manager = context.manager;
    manager.numExecutorsTargetPerResourceProfileId.put(0, 5);
    ExecutorTarget targets = new ExecutorTarget(context, context, new SparkConf(false));
    expect(targets.whyNoCeiling().isEmpty(), targets.whyNoCeiling());
    expect(targets.set(10).isEmpty() && manager.maxNumExecutors == 6, "its user's own");
    expect(manager.minNumExecutors == 2 && context.asked == -1, "nothing changes");
    targets.set(1);
    expect(manager.maxNumExecutors == 1 && manager.minNumExecutors == 1, "lowered");
    expect(context.asked == 1, "and said");
    targets.set(7);
    expect(manager.maxNumExecutors == 6 && manager.minNumExecutors == 2, "back, and no further");
    targets.set(1);
    targets.restore();
    expect(manager.maxNumExecutors == 6 && manager.minNumExecutors == 2, "as it was");
  }

  void executorsThatComeUpLateLeaveToo() {
    stage(1, 1);
    access.executor("0", 1, 0);
    apply("'target': 1");
    access.executor("1", 0, 0);
    pass(2);
    expect(access.retired.equals(Collections.singletonList("1")), "told to leave");
  }

  void aTargetIsGivenBackUntilTheClusterTakesIt() {
    stage(1, 1);
    apply("'target': 4");
    access.refusals = 2;
    ask("{'op': 'release'}");
    pass(1);
    expect(access.target == 4, "it refuses twice");
    pass(1);
    expect(access.target == -1, "in the end");
    expect(state().path("target").isNull(), "and nothing is asked for");
  }

  void endedStagesAreForgotten() {
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    apply("'hold': [2]");
    access.taskSets.remove(second);
    end(2);
    pass(30);
    expect(state().path("lease_expiries").asInt() == 0, "nothing is held any more");
    expect(state().path("stages").size() == 1, "and nothing is told of it");
  }

  void rubbishIsRefusedAndChangesNothing() {
    stage(1, 1);
    stage(2, 0);
    for (String wrong :
        new String[] {
          "'target': 0", "'target': -3", "'target': 1.5", "'target': 'two'", "'hold': ['x']",
          "'hold': [2.5]", "'priority': {'two': 1}", "'priority': {'2': 'high'}",
          "'hold': 2", "'priority': [2]", "'hold': [2], 'target': 0", "'target': 99999999999"
        }) {
      JsonNode answer = apply(wrong);
      expect(!answer.path("ok").asBoolean(), wrong);
      expect(answer.path("degraded").isMissingNode(), wrong + " is no failure of ours");
    }
    expect(held().isEmpty() && access.target == -1, "nothing changed");
    expect(!ask("{'op': 'fly'}").path("ok").asBoolean(), "no such request");
    expect(!ask("{'op': 'lease', 'seconds': 0}").path("ok").asBoolean(), "no such lease");
    expect(ask("{'op': 'lease', 'seconds': 60}").path("ok").asBoolean(), "a long one");
    apply("'hold': [2]");
    pass(50);
    expect(held().equals("2"), "it lasts");
  }

  void whatIsMissingIsSaid() {
    access.capabilities.put("hold", "switched off");
    access.capabilities.put("priority", "switched off");
    stage(1, 1);
    PretendTaskSet second = stage(2, 0);
    JsonNode answer = apply("'hold': [2], 'priority': {'2': -1}, 'target': 2");
    expect(answer.at("/items/hold 2").asText().equals("switched off"), "hold");
    expect(answer.at("/items/priority 2").asText().equals("switched off"), "priority");
    expect(answer.at("/items/target").asText().isEmpty() && access.target == 2, "the quota taskSets");
    expect(!second.isHeld && second.priority == 2, "nothing else happened");
    expect(state().at("/missing/hold").asText().equals("switched off"), "said in the state");
  }

  void skippedStagesAreKnown() {
    Map<Integer, ActivityListener.StageEntry> byNumber = new HashMap<>();
    for (int number = 0; number < 4; number++) {
      byNumber.put(number, new ActivityListener.StageEntry(number));
    }
    byNumber.get(1).parents.add(0);
    byNumber.get(2).parents.add(1);
    byNumber.get(3).parents.addAll(Arrays.asList(1, 2));
    byNumber.get(2).isSubmitted = true;
    List<ActivityListener.StageEntry> all = new ArrayList<>(byNumber.values());
    Set<Integer> none = Collections.emptySet();
    expect(ActivityListener.skipped(all, none, 100).isEmpty(), "it may be on its way");
    expect(ActivityListener.skipped(all, none, 5_000).toString().equals("[0, 1]"), "parents of one that runs");
    byNumber.get(2).isDone = true;
    expect(ActivityListener.skipped(all, none, 5_000).contains(3), "ready, and never submitted");
    Set<Integer> atWork = Collections.singleton(1);
    expect(ActivityListener.skipped(all, atWork, 5_000).toString().equals("[0]"), "one that runs was not");
  }

  // The wire.

  void silentCallersKeepNobodyOut() {
    try (Server server = new Server(controller, 0, 60_000)) {
      String place = java.nio.file.Files.createTempFile("trial", ".json").toString();
      server.start(place, "app", "4.3");
      List<java.net.Socket> silent = new ArrayList<>();
      try (java.net.Socket early = connect(server)) {
        expect(hello(early, server).contains("app"), "the first one is served");
        for (int each = 0; each < 3 * Connections.MOST; each++) {
          silent.add(connect(server));
        }
        try (java.net.Socket late = connect(server)) {
          expect(hello(late, server).contains("app"), "who comes later is served");
        }
        expect(hello(early, server).contains("app"), "who was known stays");
      }
      for (java.net.Socket each : silent) {
        each.close();
      }
    } catch (java.io.IOException failed) {
      throw new AssertionError(failed);
    }
  }

  void whoShowsNoTokenInTimeIsHungUpOn() {
    try (Server server = new Server(controller, 0, 300)) {
      String place = java.nio.file.Files.createTempFile("trial", ".json").toString();
      server.start(place, "app", "4.3");
      try (java.net.Socket known = connect(server);
          java.net.Socket dribbling = connect(server)) {
        expect(hello(known, server).contains("app"), "known in time");
        dribbling.setSoTimeout(50);
        expect(isHungUpOn(dribbling), "a byte now and then is no request");
        expect(hello(known, server).contains("app"), "who is known may be silent");
      }
      try (java.net.Socket rubbish = connect(server)) {
        rubbish.getOutputStream().write("hello\n".getBytes());
        expect(readLine(rubbish).contains("no JSON"), "told why");
        expect(rubbish.getInputStream().read() < 0, "and hung up on");
      }
    } catch (java.io.IOException failed) {
      throw new AssertionError(failed);
    }
  }

  private static java.net.Socket connect(Server server) throws java.io.IOException {
    java.net.Socket socket =
        new java.net.Socket(java.net.InetAddress.getLoopbackAddress(), server.port());
    socket.setSoTimeout(20_000);
    return socket;
  }

  private static String hello(java.net.Socket socket, Server server) throws java.io.IOException {
    String request = "{\"op\": \"hello\", \"token\": \"" + server.token() + "\"}\n";
    socket.getOutputStream().write(request.getBytes());
    return readLine(socket);
  }

  private static String readLine(java.net.Socket socket) throws java.io.IOException {
    StringBuilder line = new StringBuilder();
    int next;
    while ((next = socket.getInputStream().read()) >= 0 && next != '\n') {
      line.append((char) next);
    }
    return line.toString();
  }

  /** Sends a byte whenever nothing has come for a while. */
  private static boolean isHungUpOn(java.net.Socket socket) {
    for (int bytes = 0; bytes < 200; bytes++) {
      try {
        socket.getOutputStream().write(' ');
        if (socket.getInputStream().read() < 0) {
          return true;
        }
      } catch (java.net.SocketTimeoutException nothing) {
        continue;
      } catch (java.io.IOException reset) {
        return true;
      }
    }
    return false;
  }

  public static void main(String[] arguments) throws Exception {
    for (java.lang.reflect.Method trial : RulesTrial.class.getDeclaredMethods()) {
      boolean isTrial =
          trial.getReturnType() == void.class
              && trial.getParameterCount() == 0
              && !java.lang.reflect.Modifier.isStatic(trial.getModifiers())
              && !trial.isSynthetic();
      if (isTrial) {
        String outcome = "";
        try {
          trial.invoke(new RulesTrial());
        } catch (java.lang.reflect.InvocationTargetException failure) {
          outcome = String.valueOf(failure.getCause());
        }
        System.out.println(trial.getName() + "\t" + outcome);
      }
    }
  }
}
