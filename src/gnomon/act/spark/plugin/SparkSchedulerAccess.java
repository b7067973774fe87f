package gnomon.spark;

import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;

/**
 * SchedulerAccess on a Spark as it was released. What is not part of its public interface is looked up by
 * name when the driver starts: a version that lacks a call lacks that capability, and says so.
 */
final class SparkSchedulerAccess implements SchedulerAccess {
  private final SparkContext context;
  private final ActivityListener activity;
  private final Object scheduler;
  private final Object backend;
  private final Object rootPool;
  private final ExecutorTarget target;
  private final Map<String, String> capabilities = new LinkedHashMap<>();
  private final boolean keepsShuffle;
  /** 0 where tasks take more than cores, so that cores do not tell how many fit. */
  private final int coresPerTask;
  private Object holdingPool;
  /** The pool that each held task set came from. */
  private final Map<Object, Object> homes = new HashMap<>();

  SparkSchedulerAccess(SparkContext context, ActivityListener activity, SparkConf conf) {
    this.context = context;
    this.activity = activity;
    this.scheduler = Reflection.call(context, "taskScheduler");
    this.backend = Reflection.call(context, "schedulerBackend");
    this.rootPool = Reflection.call(scheduler, "rootPool");
    this.target = new ExecutorTarget(context, backend, conf);
    this.keepsShuffle = conf.getBoolean("spark.shuffle.service.enabled", false);
    this.coresPerTask =
        conf.getAllWithPrefix("spark.task.resource.").length > 0
            ? 0
            : conf.getInt("spark.task.cpus", 1);
    Set<String> disabled =
        new HashSet<>(Arrays.asList(conf.get("spark.gnomon.disable", "").trim().split("\\s*,\\s*")));
    capabilities.put("set_target", target.whyNoTarget());
    capabilities.put("decommission", target.whyNoDecommission());
    capabilities.put("dynamic_ceiling", target.whyNoCeiling());
    capabilities.put("priority", whyNoPriority());
    capabilities.put("hold", whyNoHold());
    capabilities.put("barrier", whyNoBarrier());
    for (String name : capabilities.keySet()) {
      if (disabled.contains(name)) {
        capabilities.put(name, "switched off by spark.gnomon.disable");
      }
    }
  }

  @Override
  public Map<String, String> capabilities() {
    return Collections.unmodifiableMap(capabilities);
  }

  private boolean can(String name) {
    return capabilities.get(name).isEmpty();
  }

  @Override
  public <T> T locked(Supplier<T> action) {
    // The lock under which Spark itself places tasks and changes its pools.
    synchronized (scheduler) {
      return action.get();
    }
  }

  // Stages.

  private String whyNoPriority() {
    return Reflection.missing(taskSetClass(), "priority_$eq", "stageId", "runningTasks", "taskSet");
  }

  private String whyNoHold() {
    Class<?> pool = rootPool.getClass();
    String why =
        Reflection.missing(
            pool, "addSchedulable", "removeSchedulable", "schedulableQueue",
            "increaseRunningTasks", "decreaseRunningTasks");
    if (why.isEmpty()) {
      why = Reflection.missing(taskSetClass(), "parent", "isZombie", "runningTasks", "stageId");
    }
    if (why.isEmpty()) {
      why = Reflection.missing(backend.getClass(), "reviveOffers");
    }
    if (!why.isEmpty()) {
      return why;
    }
    try {
      // Compiled against this Spark, or left out where its pools are of another shape.
      Constructor<?> make = Class.forName("gnomon.spark.HoldingPool").getDeclaredConstructor();
      make.setAccessible(true);
      holdingPool = make.newInstance();
      return "";
    } catch (ReflectiveOperationException | LinkageError other) {
      return "this Spark's pools are of another shape: " + other;
    }
  }

  private static Class<?> taskSetClass() {
    try {
      return Class.forName("org.apache.spark.scheduler.TaskSetManager");
    } catch (ClassNotFoundException none) {
      return Object.class;
    }
  }

  @Override
  public List<TaskSetView> taskSets() {
    List<SparkTaskSet> found = new ArrayList<>();
    if (Reflection.missing(taskSetClass(), "stageId", "taskSet").isEmpty()) {
      collect(rootPool, found);
    }
    // By what was read once: the scheduler stands still meanwhile, and calls by name take time.
    found.sort(
        Comparator.<SparkTaskSet>comparingInt(taskSet -> taskSet.listedPriority)
            .thenComparingInt(taskSet -> taskSet.stage));
    return new ArrayList<>(found);
  }

  private void collect(Object pool, List<SparkTaskSet> into) {
    for (Object child : (Collection<?>) Reflection.call(pool, "schedulableQueue")) {
      if (!taskSetClass().isInstance(child)) {
        collect(child, into);
      } else if (!(Boolean) Reflection.call(child, "isZombie")) {
        into.add(new SparkTaskSet(child, pool == holdingPool, can("priority")));
      }
    }
  }

  @Override
  public void hold(TaskSetView taskSet) {
    Object tasks = ((SparkTaskSet) taskSet).manager;
    if (Reflection.call(holdingPool, "parent") == null) {
      Reflection.call(rootPool, "addSchedulable", holdingPool);
    }
    Object home = Reflection.call(tasks, "parent");
    homes.put(tasks, home);
    try {
      moveBetween(home, holdingPool, tasks);
    } catch (RuntimeException failure) {
      putBack(tasks, home);
      throw failure;
    }
    ((SparkTaskSet) taskSet).isHeld = true;
  }

  @Override
  public void release(TaskSetView taskSet) {
    Object tasks = ((SparkTaskSet) taskSet).manager;
    Object home = homes.getOrDefault(tasks, rootPool);
    try {
      moveBetween(holdingPool, home, tasks);
    } catch (RuntimeException failure) {
      putBack(tasks, home);
      throw failure;
    }
    if (Reflection.missing(taskSetClass(), "executorAdded").isEmpty()) {
      // Executors that came meanwhile are unknown to it: it may prefer hosts that are gone.
      Reflection.call(tasks, "executorAdded");
    }
    ((SparkTaskSet) taskSet).isHeld = false;
  }

  /** Each pool counts the tasks that run in it. */
  private static void moveBetween(Object from, Object to, Object tasks) {
    int running = (Integer) Reflection.call(tasks, "runningTasks");
    Reflection.call(from, "removeSchedulable", tasks);
    Reflection.call(from, "decreaseRunningTasks", running);
    Reflection.call(to, "addSchedulable", tasks);
    Reflection.call(to, "increaseRunningTasks", running);
  }

  /** A stage in no pool would never run again: whatever failed on the way, it is in its own. */
  private void putBack(Object tasks, Object home) {
    ((Collection<?>) Reflection.call(holdingPool, "schedulableQueue")).remove(tasks);
    if (!((Collection<?>) Reflection.call(home, "schedulableQueue")).contains(tasks)) {
      Reflection.call(home, "addSchedulable", tasks);
    }
    homes.remove(tasks);
  }

  @Override
  public boolean forgetEnded() {
    if (homes.isEmpty()) {
      return false;
    }
    Collection<?> held = (Collection<?>) Reflection.call(holdingPool, "schedulableQueue");
    homes.keySet().retainAll(new HashSet<Object>(held));
    if (held.isEmpty()) {
      Reflection.call(rootPool, "removeSchedulable", holdingPool);
      Reflection.setNull(holdingPool, "parent_$eq");
    }
    return !homes.isEmpty();
  }

  @Override
  public void setPriority(TaskSetView taskSet, int priority) {
    Reflection.call(((SparkTaskSet) taskSet).manager, "priority_$eq", priority);
  }

  @Override
  public void reviveOffers() {
    Reflection.call(backend, "reviveOffers");
  }

  // Jobs.

  @Override
  public Set<Integer> missingJobs(Set<Integer> jobs) {
    if (jobs.isEmpty() || !whyNoActiveJobs().isEmpty()) {
      return Collections.emptySet();
    }
    // Spark's status tracker is made of events, which are dropped as ours are. This is the table of
    // the scheduler's own thread, which may change it meanwhile: a wrong answer is not given twice.
    Object active = Reflection.call(Reflection.call(context, "dagScheduler"), "jobIdToActiveJob");
    Set<Integer> missing = new HashSet<>(jobs);
    missing.removeIf(job -> (Boolean) Reflection.call(active, "contains", job));
    return missing;
  }

  private String whyNoActiveJobs() {
    String why = Reflection.missing(context.getClass(), "dagScheduler");
    return why.isEmpty()
        ? Reflection.missing(Reflection.call(context, "dagScheduler").getClass(), "jobIdToActiveJob")
        : why;
  }

  // Executors.

  @Override
  public Set<String> missingExecutors(Set<String> ids) {
    if (!Reflection.missing(backend.getClass(), "getExecutorIds").isEmpty()) {
      return Collections.emptySet();
    }
    Set<String> missing = new HashSet<>(ids);
    scala.collection.Iterator<?> known =
        (scala.collection.Iterator<?>)
            Reflection.call(Reflection.call(backend, "getExecutorIds"), "iterator");
    while (known.hasNext()) {
      missing.remove(known.next());
    }
    return missing;
  }

  @Override
  public List<ExecutorView> executors() {
    List<ExecutorView> seen = new ArrayList<>();
    Map<String, Integer> running = runningByExecutor();
    boolean canAsk = Reflection.missing(scheduler.getClass(), "isExecutorDecommissioned").isEmpty();
    for (ActivityListener.ExecutorEntry each : activity.executors()) {
      boolean leaving =
          canAsk && (Boolean) Reflection.call(scheduler, "isExecutorDecommissioned", each.id);
      int tasks = running.getOrDefault(each.id, each.running);
      boolean isIdle = tasks == 0 && each.running == 0;
      long shuffleBytes = keepsShuffle ? 0 : each.shuffleBytes;
      seen.add(
          new ExecutorView(
              each.id, each.host, each.cores, tasks, isIdle, leaving, shuffleBytes));
    }
    return seen;
  }

  /** As the scheduler counts, which is ahead of the events that the application has received. */
  private Map<String, Integer> runningByExecutor() {
    Map<String, Integer> counts = new HashMap<>();
    if (Reflection.missing(scheduler.getClass(), "runningTasksByExecutors").isEmpty()) {
      scala.collection.Iterator<?> pairs =
          (scala.collection.Iterator<?>)
              Reflection.call(Reflection.call(scheduler, "runningTasksByExecutors"), "iterator");
      while (pairs.hasNext()) {
        scala.Tuple2<?, ?> pair = (scala.Tuple2<?, ?>) pairs.next();
        counts.put((String) pair._1(), ((Number) pair._2()).intValue());
      }
    }
    return counts;
  }

  @Override
  public String setTarget(int count) {
    return target.set(count);
  }

  @Override
  public String restoreTarget() {
    return target.restore();
  }

  @Override
  public int requestedExecutors() {
    return target.requestedExecutors();
  }

  @Override
  public boolean canDecommissionBusy() {
    return can("decommission");
  }

  @Override
  public Set<String> executorsWithBlocks() {
    Set<String> none = Collections.emptySet();
    Optional<Set<String>> blocks = ExecutorBlocks.ownersOfBlocks();
    Optional<Set<String>> shuffles =
        keepsShuffle ? Optional.of(none) : ExecutorBlocks.ownersOfShuffles();
    Set<String> found = new HashSet<>();
    if (blocks.isPresent() && shuffles.isPresent()) {
      found.addAll(blocks.get());
      found.addAll(shuffles.get());
    } else {
      // What cannot be seen may be there.
      activity.executors().forEach(executor -> found.add(executor.id));
    }
    return found;
  }

  @Override
  public int slots(ExecutorView executor) {
    return coresPerTask == 0 ? 0 : Math.max(1, executor.cores / coresPerTask);
  }

  // Barrier stages.

  private String whyNoBarrier() {
    String why = ActivityListener.whyNoBarriers();
    if (why.isEmpty()) {
      why = Reflection.missing(context.getClass(), "dagScheduler");
    }
    return why.isEmpty()
        ? Reflection.missing(
            Reflection.call(context, "dagScheduler").getClass(), "barrierJobIdToNumTasksCheckFailures")
        : why;
  }

  @Override
  public boolean hasRejectedBarrierJob() {
    return can("barrier")
        && !((Map<?, ?>)
                Reflection.call(
                    Reflection.call(context, "dagScheduler"), "barrierJobIdToNumTasksCheckFailures"))
            .isEmpty();
  }

  @Override
  public List<String> decommission(List<String> ids) {
    return can("decommission") ? target.decommission(ids) : target.dismissIdle(ids);
  }

  /** A TaskSetManager, by reflection. */
  private static final class SparkTaskSet implements TaskSetView {
    private final Object manager;
    private final boolean canOrder;
    private final int stage;
    private final int listedPriority;
    private boolean isHeld;

    SparkTaskSet(Object manager, boolean isHeld, boolean canOrder) {
      this.manager = manager;
      this.isHeld = isHeld;
      this.canOrder = canOrder;
      this.stage = (Integer) Reflection.call(manager, "stageId");
      this.listedPriority = priority();
    }

    @Override
    public int stage() {
      return stage;
    }

    @Override
    public int attempt() {
      return (Integer) Reflection.call(Reflection.call(manager, "taskSet"), "stageAttemptId");
    }

    @Override
    public int tasks() {
      return (Integer) Reflection.call(manager, "numTasks");
    }

    @Override
    public int running() {
      return (Integer) Reflection.call(manager, "runningTasks");
    }

    @Override
    public int finished() {
      return (Integer) Reflection.call(manager, "tasksSuccessful");
    }

    @Override
    public int priority() {
      return canOrder ? (Integer) Reflection.call(manager, "priority") : firstPriority();
    }

    @Override
    public int firstPriority() {
      return (Integer) Reflection.call(Reflection.call(manager, "taskSet"), "priority");
    }

    @Override
    public boolean isHeld() {
      return isHeld;
    }

    @Override
    public int barrierSlots() {
      if (!Reflection.missing(taskSetClass(), "isBarrier").isEmpty()
          || !(Boolean) Reflection.call(manager, "isBarrier")) {
        return 0;
      }
      Object profile = Reflection.call(Reflection.call(manager, "taskSet"), "resourceProfileId");
      return profile.equals(ActivityListener.ORDINARY_PROFILE) ? tasks() : ActivityListener.UNKNOWN_SLOTS;
    }
  }
}
