package gnomon.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import gnomon.spark.SchedulerAccess.ExecutorView;
import gnomon.spark.SchedulerAccess.TaskSetView;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Answers requests, and gives everything back when none come any more or when something fails.
 *
 * <p>The lease: whoever holds something must be heard of. When it runs out, stages return, the
 * executor target and the priorities are as they were.
 */
final class Controller {
  private static final Logger LOG = LoggerFactory.getLogger(Controller.class);
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long LOOK_MS = 100;
  private static final long LOOKS_PER_SECOND = 1_000 / LOOK_MS;
  private static final long LOOKS_PER_AUDIT = 3 * LOOKS_PER_SECOND;
  /** After so many failures this Spark is not touched again. */
  private static final int MOST_FAILURES = 3;
  private static final int DEEPEST_CAUSE = 50;
  private static final String FAILED = "an unknown failure";
  private static final String NO_STAGE = "no active job has such a stage";
  static final int PROTOCOL = 1;

  private final SchedulerAccess access;
  private final ActivityListener activity;
  private final String application;
  private final LongSupplier clock;
  private final Stages stages;
  private final Quota quota;
  private final Reconciler reconciler;
  private final ScheduledExecutorService watchdog =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.named("gnomon-watchdog"));
  private volatile long leaseNs;
  private volatile long heardNs;
  private volatile long leaseExpiries;
  private volatile String degraded = "";
  private final AtomicInteger failures = new AtomicInteger();
  private long looks;

  Controller(SchedulerAccess access, ActivityListener activity, String application, Settings settings) {
    this(access, activity, application, settings, System::nanoTime, Quota.worker());
  }

  /** With a clock and a thread of somebody else's for what the cluster is asked. */
  Controller(
      SchedulerAccess access,
      ActivityListener activity,
      String application,
      Settings settings,
      LongSupplier clock,
      ExecutorService worker) {
    this.access = access;
    this.activity = activity;
    this.application = application;
    this.clock = clock;
    this.leaseNs = settings.leaseNs;
    this.heardNs = clock.getAsLong();
    this.stages = new Stages(access, clock, settings);
    this.quota = new Quota(access, new MinExecutors(access, activity, clock), clock, worker, this::degrade);
    this.reconciler = new Reconciler(access, activity);
  }

  void start() {
    watchdog.scheduleWithFixedDelay(this::tick, LOOK_MS, LOOK_MS, TimeUnit.MILLISECONDS);
  }

  /** The application ends: nothing is left to give back to. */
  void close() {
    watchdog.shutdownNow();
    quota.close();
  }

  /** One look of the watchdog, which would never look again if anything came out of here. */
  void tick() {
    try {
      looks++;
      if (isActive() && clock.getAsLong() - heardNs > leaseNs) {
        LOG.warn("gnomon's agent is not heard of any more: everything is given back");
        try {
          releaseAll();
        } finally {
          // Who sees it counted sees the stages back; the executors while nothing is owed.
          leaseExpiries++;
        }
      }
      stages.forgetAllBut(activity::stageNumbers);
      stages.look();
      if (looks % LOOKS_PER_SECOND == 0) {
        quota.look();
      }
      if (looks % LOOKS_PER_AUDIT == 0) {
        reconciler.look();
      }
    } catch (Throwable failure) {
      degrade(failure);
    }
  }

  /** One request, one answer. */
  ObjectNode answer(JsonNode request) {
    if (!request.path("watch").asBoolean(false)) {
      heardNs = clock.getAsLong();
    }
    try {
      switch (request.path("op").asText("")) {
        case "hello":
          return hello();
        case "state":
          return state();
        case "apply":
          return apply(request);
        case "release":
          releaseAll();
          if (failures.get() < MOST_FAILURES) {
            degraded = "";
          }
          return good();
        case "lease":
          return lease(request);
        default:
          return bad("no such request: " + request.path("op"));
      }
    } catch (IllegalArgumentException wrong) {
      return bad(wrong.getMessage());
    } catch (Throwable failure) {
      degrade(failure);
      return bad("degraded: " + degraded).put("degraded", degraded);
    }
  }

  private ObjectNode refuse() {
    return bad("degraded: " + degraded + "; release first").put("degraded", degraded);
  }

  static ObjectNode bad(String why) {
    return JSON.createObjectNode().put("ok", false).put("error", why);
  }

  private static ObjectNode good() {
    return JSON.createObjectNode().put("ok", true);
  }

  private boolean isActive() {
    return stages.isActive() || quota.target() != null;
  }

  /**
   * Something failed: whatever state it left behind, everything is given back. That comes first and
   * nothing is thrown: where memory has run out, telling of it fails as well.
   */
  private void degrade(Throwable failure) {
    failures.incrementAndGet();
    degraded = FAILED;
    Throwable again = null;
    try {
      releaseAll();
    } catch (Throwable other) {
      again = other;
    }
    try {
      degraded = describe(failure);
      LOG.warn("gnomon gives everything back", failure);
      if (again != null) {
        LOG.warn("not everything could be given back", again);
      }
    } catch (Throwable untold) {
      // The state reports the failure.
    }
  }

  private static String describe(Throwable failure) {
    Throwable cause = failure;
    // Causes may go round in a circle.
    for (int depth = 0; depth < DEEPEST_CAUSE && cause.getCause() != null; depth++) {
      cause = cause.getCause();
    }
    return cause.getClass().getSimpleName() + ": " + cause.getMessage();
  }

  private void releaseAll() {
    try {
      stages.releaseAll();
    } finally {
      quota.restoreSoon();
    }
  }

  private ObjectNode hello() {
    ObjectNode answer = good().put("protocol", PROTOCOL).put("application", application);
    answer.put("lease_s", leaseNs / 1e9);
    capabilities(answer);
    return answer;
  }

  private void capabilities(ObjectNode answer) {
    ObjectNode able = answer.putObject("capabilities");
    ObjectNode missing = answer.putObject("missing");
    for (Map.Entry<String, String> each : access.capabilities().entrySet()) {
      able.put(each.getKey(), each.getValue().isEmpty());
      if (!each.getValue().isEmpty()) {
        missing.put(each.getKey(), each.getValue());
      }
    }
  }

  private ObjectNode lease(JsonNode request) {
    double seconds = request.path("seconds").asDouble(leaseNs / 1e9);
    if (!(seconds >= 0.5 && seconds <= 3600)) {
      return bad("a lease lasts from 0.5 to 3600 seconds");
    }
    leaseNs = (long) (seconds * 1e9);
    return good().put("lease_s", seconds);
  }

  // What is seen.

  private ObjectNode state() {
    ObjectNode answer = good().put("application", application);
    answer.put("time_ms", System.currentTimeMillis());
    capabilities(answer);
    Integer target = quota.target();
    if (target == null) {
      answer.putNull("target");
    } else {
      answer.put("target", target);
    }
    answer.put("above_target", quota.whyAbove());
    answer.put("owed", quota.isOwed());
    int asked = access.requestedExecutors();
    if (asked < 0 || asked == Integer.MAX_VALUE) {
      answer.putNull("asked_for");
    } else {
      answer.put("asked_for", asked);
    }
    answer.put("lease_s", leaseNs / 1e9).put("lease_expiries", leaseExpiries);
    answer.put("let_go", stages.letGo());
    answer.put("degraded", degraded);
    answer.put("finished_tasks", activity.finishedTasks());
    answer.put("failed_tasks", activity.failedTasks());
    listExecutors(answer.putArray("executors"));
    ArrayNode jobs = answer.putArray("jobs");
    for (ActivityListener.JobEntry job : activity.jobs()) {
      ObjectNode entry = jobs.addObject();
      entry.put("job", job.job).put("submitted_ms", job.submittedMs);
      job.stages.forEach(entry.putArray("stages")::add);
    }
    listStages(answer.putArray("stages"));
    return answer;
  }

  private void listExecutors(ArrayNode into) {
    for (ExecutorView executor : access.executors()) {
      ObjectNode entry = into.addObject();
      entry.put("id", executor.id).put("host", executor.host).put("cores", executor.cores);
      entry.put("running", executor.running).put("decommissioning", executor.leaving);
    }
  }

  private void listStages(ArrayNode into) {
    Map<Integer, TaskSetView> active = new HashMap<>();
    access.locked(
        () -> {
          access.taskSets().forEach(taskSet -> active.put(taskSet.stage(), taskSet));
          return true;
        });
    List<ActivityListener.StageEntry> known = activity.stages();
    Set<Integer> skipped = ActivityListener.skipped(known, active.keySet(), System.currentTimeMillis());
    for (ActivityListener.StageEntry stage : known) {
      ObjectNode entry = into.addObject();
      TaskSetView taskSet = active.get(stage.stage);
      entry.put("stage", stage.stage).put("name", stage.name);
      entry.put("attempt", taskSet == null ? stage.attempt : taskSet.attempt());
      entry.put("tasks", taskSet == null ? stage.tasks : taskSet.tasks());
      entry.put("running", taskSet == null ? stage.running : taskSet.running());
      entry.put("finished", taskSet == null ? stage.finished : taskSet.finished());
      entry.put("failed", stage.failed);
      entry.put("submitted", taskSet != null || stage.isSubmitted);
      entry.put("done", taskSet == null && stage.isDone);
      entry.put("skipped", taskSet == null && skipped.contains(stage.stage));
      entry.put("held", taskSet != null && taskSet.isHeld());
      entry.put("hold_requested", stages.isWanted(stage.stage));
      entry.put("schedulable", taskSet != null && !taskSet.isHeld());
      if (taskSet == null) {
        entry.putNull("priority");
      } else {
        entry.put("priority", taskSet.priority());
      }
      entry.put("mean_task_ms", stage.timed == 0 ? 0.0 : (double) stage.durationMs / stage.timed);
      entry.put("timed_tasks", stage.timed).put("cpu_ns", stage.cpuNs);
      stage.jobs.forEach(entry.putArray("jobs")::add);
      stage.parents.forEach(entry.putArray("parents")::add);
    }
  }

  // What is done.

  private ObjectNode apply(JsonNode request) {
    if (!degraded.isEmpty()) {
      return refuse();
    }
    // Read as a whole before anything is done: half a request is none.
    ControlRequest requested = ControlRequest.of(request);
    ObjectNode answer = good();
    ObjectNode items = answer.putObject("items");
    for (int stage : requested.release) {
      stages.release(stage);
      items.put("release " + stage, can("hold"));
    }
    order(requested.priority, items);
    hold(requested.hold, items);
    stages.look();
    for (int stage : requested.hold) {
      String why = stages.whyNotHeld(stage);
      if (!why.isEmpty()) {
        items.put("hold " + stage, why);
      }
    }
    if (requested.hasTarget) {
      items.put("target", target(requested.target));
    }
    if (!degraded.isEmpty()) {
      // Meanwhile, in another thread: what was given back there may have been taken again here.
      releaseAll();
      return refuse();
    }
    return answer;
  }

  private void order(Map<Integer, Integer> requested, ObjectNode items) {
    Set<Integer> known = activity.stageNumbers();
    requested.forEach(
        (stage, priority) -> {
          String why = can("priority");
          if (why.isEmpty() && !known.contains(stage)) {
            why = NO_STAGE;
          }
          if (why.isEmpty()) {
            stages.order(stage, priority);
          }
          items.put("priority " + stage, why);
        });
  }

  private void hold(List<Integer> requested, ObjectNode items) {
    Map<Integer, ActivityListener.StageEntry> known = new HashMap<>();
    activity.stages().forEach(stage -> known.put(stage.stage, stage));
    for (int stage : requested) {
      String why = can("hold");
      if (why.isEmpty() && !known.containsKey(stage)) {
        why = NO_STAGE;
      } else if (why.isEmpty() && known.get(stage).isDone) {
        why = "it has ended";
      }
      if (why.isEmpty()) {
        stages.hold(stage);
      }
      items.put("hold " + stage, why);
    }
  }

  private String target(Integer count) {
    if (count == null) {
      return quota.restore();
    }
    String why = can("set_target");
    if (!why.isEmpty() && !can("dynamic_ceiling").isEmpty()) {
      return why;
    }
    return count.equals(quota.target()) ? quota.whyAbove() : quota.set(count);
  }

  private String can(String capability) {
    return access.capabilities().getOrDefault(capability, "unknown to this plugin");
  }
}
