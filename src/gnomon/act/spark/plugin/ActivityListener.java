package gnomon.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.scheduler.SparkListenerJobEnd;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.StageInfo;
import org.apache.spark.storage.RDDInfo;

/** What events have reported: active jobs, their stages, executors. Bounded by what is active. */
final class ActivityListener extends SparkListener {
  /** A stage that is ready is submitted at once: one that is not by then was computed before. */
  private static final long SKIPPED_AFTER_MS = 2_000;
  /** The stage wants executors of another kind than the ordinary one. */
  static final int UNKNOWN_SLOTS = Integer.MAX_VALUE;
  static final int ORDINARY_PROFILE = 0;

  private final Map<Integer, JobEntry> jobs = new TreeMap<>();
  private final Map<Integer, StageEntry> stages = new TreeMap<>();
  private final Map<String, ExecutorEntry> executors = new LinkedHashMap<>();
  private long finishedTasks;
  private long failedTasks;

  static final class JobEntry {
    final int job;
    final long submittedMs;
    final List<Integer> stages = new ArrayList<>();

    JobEntry(int job, long submittedMs) {
      this.job = job;
      this.submittedMs = submittedMs;
    }
  }

  static final class StageEntry {
    final int stage;
    String name;
    int attempt;
    int tasks;
    int running;
    int finished;
    int failed;
    boolean isSubmitted;
    boolean isDone;
    /** Tasks that have to start at once; 0 where it is no barrier stage. */
    int barrierSlots;
    long readyMs;
    long timed;
    long durationMs;
    long cpuNs;
    final Set<Integer> jobs = new TreeSet<>();
    final List<Integer> parents = new ArrayList<>();

    StageEntry(int stage) {
      this.stage = stage;
    }

    StageEntry copy() {
      StageEntry same = new StageEntry(stage);
      same.name = name;
      same.attempt = attempt;
      same.tasks = tasks;
      same.running = running;
      same.finished = finished;
      same.failed = failed;
      same.isSubmitted = isSubmitted;
      same.isDone = isDone;
      same.barrierSlots = barrierSlots;
      same.readyMs = readyMs;
      same.timed = timed;
      same.durationMs = durationMs;
      same.cpuNs = cpuNs;
      same.jobs.addAll(jobs);
      same.parents.addAll(parents);
      return same;
    }
  }

  static final class ExecutorEntry {
    final String id;
    final String host;
    final int cores;
    int running;
    long shuffleBytes;

    ExecutorEntry(String id, String host, int cores) {
      this.id = id;
      this.host = host;
      this.cores = cores;
    }
  }

  @Override
  public synchronized void onJobStart(SparkListenerJobStart event) {
    JobEntry job = new JobEntry(event.jobId(), event.time());
    scala.collection.Iterator<StageInfo> infos = event.stageInfos().iterator();
    while (infos.hasNext()) {
      StageInfo info = infos.next();
      StageEntry stage = stages.get(info.stageId());
      if (stage == null) {
        stage = new StageEntry(info.stageId());
        describe(stage, info);
        stage.readyMs = event.time();
        stages.put(info.stageId(), stage);
      }
      stage.jobs.add(event.jobId());
      job.stages.add(info.stageId());
    }
    jobs.put(event.jobId(), job);
  }

  @Override
  public synchronized void onJobEnd(SparkListenerJobEnd event) {
    dropJob(event.jobId());
  }

  synchronized void dropJob(int number) {
    JobEntry job = jobs.remove(number);
    if (job == null) {
      return;
    }
    for (int each : job.stages) {
      StageEntry stage = stages.get(each);
      if (stage != null && stage.jobs.remove(number) && stage.jobs.isEmpty()) {
        stages.remove(each);
      }
    }
  }

  @Override
  public synchronized void onStageSubmitted(SparkListenerStageSubmitted event) {
    StageEntry stage = stages.get(event.stageInfo().stageId());
    if (stage == null) {
      return;
    }
    // Another attempt counts its own tasks; how long tasks took is known from all of them.
    describe(stage, event.stageInfo());
    stage.isSubmitted = true;
    stage.isDone = false;
    stage.running = stage.finished = 0;
  }

  @Override
  public synchronized void onStageCompleted(SparkListenerStageCompleted event) {
    StageInfo info = event.stageInfo();
    StageEntry stage = stages.get(info.stageId());
    if (stage == null || info.attemptNumber() != stage.attempt) {
      return;
    }
    boolean hasFailed = info.failureReason().isDefined();
    stage.isDone = !hasFailed;
    stage.isSubmitted = !hasFailed;
    long nowMs = System.currentTimeMillis();
    for (StageEntry child : stages.values()) {
      if (child.parents.contains(info.stageId())) {
        child.readyMs = nowMs;
      }
    }
    stage.readyMs = nowMs;
  }

  @Override
  public synchronized void onTaskStart(SparkListenerTaskStart event) {
    StageEntry stage = stages.get(event.stageId());
    if (stage != null && event.stageAttemptId() == stage.attempt) {
      stage.running++;
    }
    ExecutorEntry executor = executors.get(event.taskInfo().executorId());
    if (executor != null) {
      executor.running++;
    }
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd event) {
    if (event.taskInfo() == null) {
      return;
    }
    StageEntry stage = stages.get(event.stageId());
    if (event.reason() instanceof org.apache.spark.Resubmitted$) {
      // Its output left with an executor: a task that had ended well runs once more.
      if (stage != null && event.stageAttemptId() == stage.attempt) {
        stage.finished = Math.max(0, stage.finished - 1);
      }
      return;
    }
    boolean isGood = event.taskInfo().successful();
    if (isGood) {
      finishedTasks++;
    } else if (event.taskInfo().failed()) {
      // A task that was killed because its twin was quicker has not failed.
      failedTasks++;
    }
    TaskMetrics metrics = event.taskMetrics();
    ExecutorEntry executor = executors.get(event.taskInfo().executorId());
    if (executor != null) {
      executor.running = Math.max(0, executor.running - 1);
      if (metrics != null) {
        executor.shuffleBytes += metrics.shuffleWriteMetrics().bytesWritten();
      }
    }
    if (stage == null) {
      return;
    }
    if (event.stageAttemptId() == stage.attempt) {
      stage.running = Math.max(0, stage.running - 1);
      stage.finished += isGood ? 1 : 0;
    }
    stage.failed += event.taskInfo().failed() ? 1 : 0;
    if (metrics != null) {
      stage.cpuNs += metrics.executorCpuTime();
    }
    if (isGood) {
      stage.timed++;
      stage.durationMs += event.taskInfo().duration();
    }
  }

  @Override
  public synchronized void onExecutorAdded(SparkListenerExecutorAdded event) {
    executors.put(
        event.executorId(),
        new ExecutorEntry(
            event.executorId(),
            event.executorInfo().executorHost(),
            event.executorInfo().totalCores()));
  }

  @Override
  public synchronized void onExecutorRemoved(SparkListenerExecutorRemoved event) {
    dropExecutor(event.executorId());
  }

  synchronized void dropExecutor(String id) {
    executors.remove(id);
  }

  synchronized List<JobEntry> jobs() {
    return new ArrayList<>(jobs.values());
  }

  synchronized List<StageEntry> stages() {
    List<StageEntry> copies = new ArrayList<>();
    for (StageEntry stage : stages.values()) {
      copies.add(stage.copy());
    }
    return copies;
  }

  synchronized Set<Integer> stageNumbers() {
    return new HashSet<>(stages.keySet());
  }

  /** Slots for the widest barrier stage that runs or is to run; 0 where there is none. */
  synchronized int barrierSlots(Set<Integer> atWork, long nowMs) {
    int most = 0;
    Set<Integer> skipped = null;
    for (StageEntry stage : stages.values()) {
      boolean hasEnded = stage.isDone && !atWork.contains(stage.stage);
      if (stage.barrierSlots > most && !hasEnded) {
        skipped =
            skipped == null ? skipped(new ArrayList<>(stages.values()), atWork, nowMs) : skipped;
        most = skipped.contains(stage.stage) ? most : stage.barrierSlots;
      }
    }
    return most;
  }

  synchronized List<ExecutorEntry> executors() {
    return new ArrayList<>(executors.values());
  }

  synchronized long finishedTasks() {
    return finishedTasks;
  }

  synchronized long failedTasks() {
    return failedTasks;
  }

  /**
   * Stages whose output was there before: ready since a while and never submitted. Those at work
   * were, even where the event was lost.
   */
  static Set<Integer> skipped(List<StageEntry> stages, Set<Integer> atWork, long nowMs) {
    Map<Integer, StageEntry> byNumber = new HashMap<>();
    for (StageEntry stage : stages) {
      byNumber.put(stage.stage, stage);
    }
    Set<Integer> skipped = new HashSet<>();
    // Numbers grow from parents to children, so one pass in their order sees parents first.
    for (StageEntry stage : stages) {
      boolean isReady =
          nowMs - stage.readyMs >= SKIPPED_AFTER_MS && !atWork.contains(stage.stage);
      for (int parent : stage.parents) {
        StageEntry before = byNumber.get(parent);
        boolean isThere = before == null || before.isDone || skipped.contains(parent);
        isReady &= isThere && !atWork.contains(parent);
      }
      if (isReady && !stage.isSubmitted && !stage.isDone) {
        skipped.add(stage.stage);
      }
    }
    return skipped;
  }

  private static void describe(StageEntry stage, StageInfo info) {
    stage.name = info.name();
    stage.attempt = info.attemptNumber();
    stage.tasks = info.numTasks();
    stage.barrierSlots = barrierSlots(info);
    stage.parents.clear();
    scala.collection.Iterator<Object> parents = info.parentIds().iterator();
    while (parents.hasNext()) {
      stage.parents.add(((Number) parents.next()).intValue());
    }
  }

  /** "" where Spark reports which stages are barrier stages. */
  static String whyNoBarriers() {
    return Reflection.missing(RDDInfo.class, "isBarrier");
  }

  private static int barrierSlots(StageInfo info) {
    if (!whyNoBarriers().isEmpty()) {
      return 0;
    }
    scala.collection.Iterator<RDDInfo> data = info.rddInfos().iterator();
    while (data.hasNext()) {
      if ((Boolean) Reflection.call(data.next(), "isBarrier")) {
        return info.resourceProfileId() == ORDINARY_PROFILE ? info.numTasks() : UNKNOWN_SLOTS;
      }
    }
    return 0;
  }
}
