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
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.spark.SparkConf;
import org.apache.spark.rdd.DeterministicLevel;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.StageInfo;
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
  private final PretendHands hands = new PretendHands();
  private final Ledger ledger = new Ledger();
  private final Controller controller =
      new Controller(
          hands,
          ledger,
          "app",
          new Settings(10 * SECOND, SECOND / 2, 15 * SECOND),
          () -> now,
          new AtOnce());

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
  private static final class PretendHands implements Hands {
    final List<PretendWork> works = new ArrayList<>();
    final List<ExecutorView> executors = new ArrayList<>();
    final Map<String, String> capabilities = new LinkedHashMap<>();
    final List<String> retired = new ArrayList<>();
    final Set<String> withBlocks = new HashSet<>();
    boolean isTurnedAway;
    boolean canRetireBusy = true;
    int slotsEach = 1;
    int target = -1;
    int refusals;
    RuntimeException onPark;

    PretendHands() {
      for (String name : new String[] {"set_target", "decommission", "priority", "hold"}) {
        capabilities.put(name, "");
      }
      capabilities.put("dynamic_ceiling", "off");
    }

    public Map<String, String> capabilities() {
      return capabilities;
    }

    public <T> T locked(Supplier<T> action) {
      return action.get();
    }

    public List<Work> works() {
      List<Work> sorted = new ArrayList<>(works);
      sorted.sort((a, b) -> a.priority() != b.priority()
          ? Integer.compare(a.priority(), b.priority()) : Integer.compare(a.stage(), b.stage()));
      return sorted;
    }

    public void park(Work work) {
      if (onPark != null) {
        throw onPark;
      }
      ((PretendWork) work).isParked = true;
    }

    public void unpark(Work work) {
      ((PretendWork) work).isParked = false;
    }

    public void setPriority(Work work, int priority) {
      ((PretendWork) work).priority = priority;
    }

    public void revive() {}

    public List<ExecutorView> executors() {
      return new ArrayList<>(executors);
    }

    public String setTarget(int count) {
      target = count;
      return "";
    }

    public String restoreTarget() {
      if (refusals-- > 0) {
        return "not now";
      }
      target = -1;
      return "";
    }

    public int askedFor() {
      return target;
    }

    public List<String> retire(List<String> ids) {
      retired.addAll(ids);
      return ids;
    }

    public boolean canRetireBusy() {
      return canRetireBusy;
    }

    public Set<String> withBlocks() {
      return withBlocks;
    }

    public int slots(ExecutorView executor) {
      return slotsEach;
    }

    public boolean hasBarrierTurnedAway() {
      return isTurnedAway;
    }

    void executor(String id, int running, long shuffleBytes) {
      executors.add(new ExecutorView(id, "host", 1, running, false, shuffleBytes));
    }
  }

  private static final class PretendWork implements Hands.Work {
    final int stage;
    final int attempt;
    int running;
    int finished;
    int priority;
    boolean isParked;

    PretendWork(int stage, int attempt, int running) {
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

    public boolean isParked() {
      return isParked;
    }
  }

  // Words for the trials.

  private PretendWork stage(int number, int running) {
    StageInfo info =
        new StageInfo(
            number, 0, "stage", 10, none(), none(), "", null, none(), scala.Option.empty(), 0,
            false, 0);
    scala.collection.mutable.ListBuffer<StageInfo> infos =
        new scala.collection.mutable.ListBuffer<>();
    infos.$plus$eq(info);
    ledger.onJobStart(new SparkListenerJobStart(number, 0L, infos.toList(), new Properties()));
    PretendWork work = new PretendWork(number, 0, running);
    hands.works.add(work);
    return work;
  }

  /** A job of one barrier stage, as Spark tells of it. */
  private void barrier(int number, int tasks, int profile) {
    scala.collection.mutable.ListBuffer<RDDInfo> data =
        new scala.collection.mutable.ListBuffer<>();
    data.$plus$eq(rdd(false));
    data.$plus$eq(rdd(true));
    StageInfo info =
        new StageInfo(
            number, 0, "barrier", tasks, data.toList(), none(), "", null, none(),
            scala.Option.empty(), profile, false, 0);
    scala.collection.mutable.ListBuffer<StageInfo> infos =
        new scala.collection.mutable.ListBuffer<>();
    infos.$plus$eq(info);
    long nowMs = System.currentTimeMillis();
    ledger.onJobStart(new SparkListenerJobStart(number, nowMs, infos.toList(), new Properties()));
    ledger.onStageSubmitted(new SparkListenerStageSubmitted(info, new Properties()));
  }

  private static RDDInfo rdd(boolean isBarrier) {
    return new RDDInfo(
        0, "data", 1, StorageLevel.NONE(), isBarrier, none(), "", scala.Option.empty(),
        DeterministicLevel.DETERMINATE());
  }

  private void end(int job) {
    ledger.onJobEnd(new SparkListenerJobEnd(job, 1L, null));
  }

  /** What the executors are asked for is seen to once a second. */
  private void expectAsked(int count, String what) {
    pass(1);
    ask("{'op': 'state'}"); // the agent is still there
    expect(hands.target == count, what);
  }

  private static <T> scala.collection.immutable.List<T> none() {
    return new scala.collection.mutable.ListBuffer<T>().toList();
  }

  private JsonNode ask(String request) {
    try {
      return controller.answer(JSON.readTree(request.replace('\'', '"')));
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

  private static void expect(boolean isSo, String what) {
    if (!isSo) {
      throw new AssertionError(what);
    }
  }

  private String held() {
    return hands.works.stream()
        .filter(work -> work.isParked)
        .map(work -> String.valueOf(work.stage))
        .collect(Collectors.joining(","));
  }

  // Trials.

  void aLeaseThatRunsOutGivesAllBack() {
    stage(1, 2);
    PretendWork second = stage(2, 0);
    hands.executor("0", 1, 0);
    apply("'hold': [2], 'priority': {'2': -9}, 'target': 1");
    expect(held().equals("2") && second.priority == -9 && hands.target == 1, "applied");
    pass(9.9);
    expect(held().equals("2"), "held while the lease lasts");
    pass(0.3);
    expect(held().isEmpty() && second.priority == 2, "stages are back");
    expect(hands.target == -1, "the target is back");
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
    PretendWork first = stage(1, 1);
    stage(2, 0);
    apply("'hold': [2]");
    hands.works.remove(first);
    pass(0.3);
    expect(held().equals("2"), "a gap between two stages is no end");
    PretendWork next = stage(3, 1);
    pass(2);
    expect(held().equals("2"), "the next one runs");
    hands.works.remove(next);
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
    PretendWork first = stage(1, 1);
    PretendWork second = stage(2, 3);
    apply("'hold': [2]");
    hands.works.remove(first);
    pass(5);
    expect(held().equals("2"), "its own tasks still run");
    second.running = 0;
    pass(0.8);
    expect(held().isEmpty(), "now they do not");
  }

  void aHeldStageIsLetGoWhenTheOthersCannotStart() {
    stage(1, 0);
    stage(2, 0);
    hands.executor("0", 0, 0);
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
    PretendWork first = stage(1, 0);
    PretendWork second = stage(2, 0);
    PretendWork third = stage(3, 0);
    third.finished = 4;
    hands.executor("0", 0, 0);
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
    expect(state().at("/stages/1/hold_wanted").asBoolean(), "the wish is known");
    expect(state().path("let_go").asInt() == 1, "let go once");
    first.finished = 1;
    pass(0.1);
    expect(held().equals("2,3"), "another has run: the wish is met again");
    expect(apply("'hold': [2]").at("/items/hold 2").asText().isEmpty(), "nothing to say");
  }

  void thoseLetGoByTurnsDoNotEndEachOthersRest() {
    stage(1, 0);
    PretendWork second = stage(2, 0);
    stage(3, 0);
    stage(4, 0);
    hands.executor("0", 0, 0);
    for (int look = 0; look < 32; look++) {
      pass(1);
      apply("'hold': [2, 3, 4]");
    }
    expect(held().equals("4"), "two are let go, one after the other: " + held());
    hands.works.remove(second);
    end(2);
    pass(0.2);
    expect(held().equals("4"), "the end of one that was let go changes nothing: " + held());
    hands.works.remove(0);
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
    PretendWork second = stage(2, 0);
    apply("'hold': [2]");
    hands.works.remove(second);
    hands.works.add(new PretendWork(2, 1, 0));
    pass(0.1);
    expect(held().equals("2"), "the second attempt");
    PretendWork third = stage(3, 0);
    hands.works.remove(third);
    expect(apply("'hold': [3]").at("/items/hold 3").asText().isEmpty(), "not yet submitted");
    hands.works.add(third);
    pass(0.1);
    expect(third.isParked, "held when it is");
  }

  void releasingIsIdempotentAndOrderIsGivenBack() {
    stage(1, 1);
    PretendWork second = stage(2, 0);
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
    PretendWork second = stage(2, 0);
    stage(3, 0);
    apply("'hold': [2], 'target': 1");
    hands.onPark = new IllegalStateException("broken");
    JsonNode answer = apply("'hold': [3]");
    expect(!answer.path("ok").asBoolean(), "refused");
    expect(answer.path("degraded").asText().equals("IllegalStateException: broken"), "and why");
    expect(!second.isParked, "what was held before is back");
    expect(hands.target == -1, "the target too");
    expect(apply("'priority': {'2': 1}").path("error").asText().contains("release first"), "closed");
    expect(state().path("degraded").asText().contains("broken"), "seen");
    hands.onPark = null;
    ask("{'op': 'release'}");
    expect(apply("'hold': [2]").path("ok").asBoolean(), "a second chance");
    hands.onPark = new IllegalStateException("broken");
    for (int failure = 0; failure < 2; failure++) {
      apply("'hold': [3]");
      ask("{'op': 'release'}");
    }
    hands.onPark = null;
    expect(!apply("'hold': [2]").path("ok").asBoolean(), "no fourth one");
    expect(held().isEmpty(), "and nothing is held");
  }

  void aFailureOfTheWatchdogGivesAllBack() {
    stage(1, 1);
    PretendWork second = stage(2, 0);
    PretendWork third = stage(3, 0);
    hands.works.remove(third);
    apply("'hold': [2, 3]");
    hands.onPark = new LinkageErrorInside();
    hands.works.add(third);
    pass(0.1);
    expect(!second.isParked && !third.isParked, "all back");
    expect(!state().path("degraded").asText().isEmpty(), "said");
  }

  private static final class LinkageErrorInside extends RuntimeException {
    LinkageErrorInside() {
      super(new NoSuchMethodError("gone"));
    }
  }

  void idleExecutorsLeaveFirstAndTakeLeastAlong() {
    stage(1, 2);
    hands.executor("0", 1, 500);
    hands.executor("1", 0, 10);
    hands.executor("2", 1, 500);
    hands.executor("3", 0, 900);
    hands.executor("4", 0, 900);
    apply("'target': 4");
    expect(hands.retired.equals(Arrays.asList("1")), hands.retired.toString());
    apply("'target': 1");
    expect(hands.retired.equals(Arrays.asList("1", "4", "3", "2")), hands.retired.toString());
    apply("'target': 1");
    pass(3);
    expect(hands.retired.size() == 4, "nobody is told twice");
  }

  void withoutDecommissionOnlyWhoHasNothingLeaves() {
    hands.canRetireBusy = false;
    stage(1, 1);
    hands.executor("0", 1, 0);
    hands.executor("1", 0, 900);
    hands.executor("2", 0, 0);
    apply("'target': 1");
    expect(hands.retired.equals(Collections.singletonList("2")), hands.retired.toString());
  }

  void withoutDecommissionWhoHoldsBlocksStays() {
    hands.canRetireBusy = false;
    stage(1, 1);
    hands.executor("0", 1, 0);
    hands.executor("1", 0, 0);
    hands.executor("2", 0, 0);
    hands.withBlocks.add("2");
    apply("'target': 2");
    expect(hands.retired.equals(Collections.singletonList("1")), "not the youngest, which caches");
    apply("'target': 1");
    expect(hands.retired.size() == 1, "it stays although it is one too many");
    hands.withBlocks.clear();
    pass(1);
    expect(hands.retired.contains("2"), "until its data are no longer kept");
  }

  void aBarrierStageKeepsTheExecutorsItNeeds() {
    hands.slotsEach = 2;
    for (int each = 0; each < 4; each++) {
      hands.executor(String.valueOf(each), 0, 0);
    }
    barrier(1, 5, 0);
    String why = apply("'target': 1").at("/items/target").asText();
    expect(hands.target == 3, "five tasks, two on each: " + hands.target);
    expect(why.equals("3 executors are left to a barrier stage that starts 5 tasks at once"), why);
    expect(hands.retired.size() == 1, "one of four leaves");
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
    expect(hands.target == -1, "given back as ever");
  }

  void whatABarrierStageNeedsMayNotBeKnown() {
    hands.executor("0", 0, 0);
    hands.executor("1", 0, 0);
    barrier(1, 2, 7);
    String why = apply("'target': 1").at("/items/target").asText();
    expect(hands.target == -1 && hands.retired.isEmpty(), "another profile: all are left to it");
    expect(why.contains("not known"), why);
    end(1);
    expectAsked(1, "the quota is met");
    hands.slotsEach = 0;
    barrier(2, 1, 0);
    expectAsked(-1, "tasks that take more than cores");
  }

  void aJobThatBarrierSlotsKeepOutHasAllExecutorsBack() {
    hands.executor("0", 0, 0);
    stage(1, 1);
    apply("'target': 1");
    expect(hands.target == 1, "a quota");
    hands.isTurnedAway = true;
    expectAsked(-1, "given back while a job waits outside");
    expect(state().path("above_target").asText().contains("waits for slots"), "said");
    hands.executor("1", 0, 0);
    hands.isTurnedAway = false;
    pass(2);
    expect(hands.target == -1 && hands.retired.isEmpty(), "not taken before the job is known");
    barrier(2, 2, 0);
    expectAsked(2, "now it is");
    end(2);
    expectAsked(1, "the quota is met again");
    expect(hands.retired.equals(Collections.singletonList("1")), hands.retired.toString());
  }

  void aBarrierStageThatHasEndedNeedsNothing() {
    barrier(1, 5, 0);
    long nowMs = System.currentTimeMillis();
    expect(ledger.barrierSlots(nowMs) == 5, "it runs");
    StageInfo info =
        new StageInfo(
            1, 0, "barrier", 5, none(), none(), "", null, none(), scala.Option.empty(), 0, false,
            0);
    ledger.onStageCompleted(new SparkListenerStageCompleted(info));
    expect(ledger.barrierSlots(nowMs) == 0, "its job goes on, without it");
    stage(2, 1);
    expect(ledger.barrierSlots(nowMs) == 0, "an ordinary stage");
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
    Targets targets = new Targets(context, context, new SparkConf(false));
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
    hands.executor("0", 1, 0);
    apply("'target': 1");
    hands.executor("1", 0, 0);
    pass(2);
    expect(hands.retired.equals(Collections.singletonList("1")), "told to leave");
  }

  void aTargetIsGivenBackUntilTheClusterTakesIt() {
    stage(1, 1);
    apply("'target': 4");
    hands.refusals = 2;
    ask("{'op': 'release'}");
    pass(1);
    expect(hands.target == 4, "it refuses twice");
    pass(1);
    expect(hands.target == -1, "in the end");
    expect(state().path("target").isNull(), "and nothing is asked for");
  }

  void endedStagesAreForgotten() {
    stage(1, 1);
    PretendWork second = stage(2, 0);
    apply("'hold': [2]");
    hands.works.remove(second);
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
    expect(held().isEmpty() && hands.target == -1, "nothing changed");
    expect(!ask("{'op': 'fly'}").path("ok").asBoolean(), "no such request");
    expect(!ask("{'op': 'lease', 'seconds': 0}").path("ok").asBoolean(), "no such lease");
    expect(ask("{'op': 'lease', 'seconds': 60}").path("ok").asBoolean(), "a long one");
    apply("'hold': [2]");
    pass(50);
    expect(held().equals("2"), "it lasts");
  }

  void whatIsMissingIsSaid() {
    hands.capabilities.put("hold", "switched off");
    hands.capabilities.put("priority", "switched off");
    stage(1, 1);
    PretendWork second = stage(2, 0);
    JsonNode answer = apply("'hold': [2], 'priority': {'2': -1}, 'target': 2");
    expect(answer.at("/items/hold 2").asText().equals("switched off"), "hold");
    expect(answer.at("/items/priority 2").asText().equals("switched off"), "priority");
    expect(answer.at("/items/target").asText().isEmpty() && hands.target == 2, "the quota works");
    expect(!second.isParked && second.priority == 2, "nothing else happened");
    expect(state().at("/missing/hold").asText().equals("switched off"), "said in the state");
  }

  void skippedStagesAreKnown() {
    Map<Integer, Ledger.StageEntry> byNumber = new HashMap<>();
    for (int number = 0; number < 4; number++) {
      byNumber.put(number, new Ledger.StageEntry(number));
    }
    byNumber.get(1).parents.add(0);
    byNumber.get(2).parents.add(1);
    byNumber.get(3).parents.addAll(Arrays.asList(1, 2));
    byNumber.get(2).isSubmitted = true;
    List<Ledger.StageEntry> all = new ArrayList<>(byNumber.values());
    expect(Ledger.skipped(all, 100).isEmpty(), "it may be on its way");
    expect(Ledger.skipped(all, 5_000).toString().equals("[0, 1]"), "parents of one that runs");
    byNumber.get(2).isDone = true;
    expect(Ledger.skipped(all, 5_000).contains(3), "ready, and never submitted");
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
