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
 * Hands on a Spark as it was released. What is not part of its public interface is looked up by
 * name when the driver starts: a version that lacks a call lacks that capability, and says so.
 */
final class SparkHands implements Hands {
  private final SparkContext context;
  private final Ledger ledger;
  private final Object scheduler;
  private final Object backend;
  private final Object rootPool;
  private final Targets targets;
  private final Map<String, String> capabilities = new LinkedHashMap<>();
  private final boolean keepsShuffle;
  /** 0 where tasks take more than cores, so that cores do not tell how many fit. */
  private final int coresPerTask;
  private Object holdingPool;
  /** The pool that each held task set came from. */
  private final Map<Object, Object> homes = new HashMap<>();

  SparkHands(SparkContext context, Ledger ledger, SparkConf conf) {
    this.context = context;
    this.ledger = ledger;
    this.scheduler = Reach.call(context, "taskScheduler");
    this.backend = Reach.call(context, "schedulerBackend");
    this.rootPool = Reach.call(scheduler, "rootPool");
    this.targets = new Targets(context, backend, conf);
    this.keepsShuffle = conf.getBoolean("spark.shuffle.service.enabled", false);
    this.coresPerTask =
        conf.getAllWithPrefix("spark.task.resource.").length > 0
            ? 0
            : conf.getInt("spark.task.cpus", 1);
    Set<String> disabled =
        new HashSet<>(Arrays.asList(conf.get("spark.gnomon.disable", "").trim().split("\\s*,\\s*")));
    capabilities.put("set_target", targets.whyNoTarget());
    capabilities.put("decommission", targets.whyNoDecommission());
    capabilities.put("dynamic_ceiling", targets.whyNoCeiling());
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
    return Reach.missing(taskSetClass(), "priority_$eq", "stageId", "runningTasks", "taskSet");
  }

  private String whyNoHold() {
    Class<?> pool = rootPool.getClass();
    String why =
        Reach.missing(
            pool, "addSchedulable", "removeSchedulable", "schedulableQueue",
            "increaseRunningTasks", "decreaseRunningTasks");
    if (why.isEmpty()) {
      why = Reach.missing(taskSetClass(), "parent", "isZombie", "runningTasks", "stageId");
    }
    if (why.isEmpty()) {
      why = Reach.missing(backend.getClass(), "reviveOffers");
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
  public List<Work> works() {
    List<SparkWork> found = new ArrayList<>();
    if (Reach.missing(taskSetClass(), "stageId", "taskSet").isEmpty()) {
      collect(rootPool, found);
    }
    // By what was read once: the scheduler stands still meanwhile, and calls by name take time.
    found.sort(
        Comparator.<SparkWork>comparingInt(work -> work.listedPriority)
            .thenComparingInt(work -> work.stage));
    return new ArrayList<>(found);
  }

  private void collect(Object pool, List<SparkWork> into) {
    for (Object child : (Collection<?>) Reach.call(pool, "schedulableQueue")) {
      if (!taskSetClass().isInstance(child)) {
        collect(child, into);
      } else if (!(Boolean) Reach.call(child, "isZombie")) {
        into.add(new SparkWork(child, pool == holdingPool, can("priority")));
      }
    }
  }

  @Override
  public void park(Work work) {
    Object tasks = ((SparkWork) work).manager;
    if (Reach.call(holdingPool, "parent") == null) {
      Reach.call(rootPool, "addSchedulable", holdingPool);
    }
    Object home = Reach.call(tasks, "parent");
    homes.put(tasks, home);
    try {
      moveBetween(home, holdingPool, tasks);
    } catch (RuntimeException failure) {
      putBack(tasks, home);
      throw failure;
    }
    ((SparkWork) work).isParked = true;
  }

  @Override
  public void unpark(Work work) {
    Object tasks = ((SparkWork) work).manager;
    Object home = homes.getOrDefault(tasks, rootPool);
    try {
      moveBetween(holdingPool, home, tasks);
    } catch (RuntimeException failure) {
      putBack(tasks, home);
      throw failure;
    }
    if (Reach.missing(taskSetClass(), "executorAdded").isEmpty()) {
      // Executors that came meanwhile were not told to it: it may prefer hosts that are gone.
      Reach.call(tasks, "executorAdded");
    }
    ((SparkWork) work).isParked = false;
  }

  /** Each pool counts the tasks that run in it. */
  private static void moveBetween(Object from, Object to, Object tasks) {
    int running = (Integer) Reach.call(tasks, "runningTasks");
    Reach.call(from, "removeSchedulable", tasks);
    Reach.call(from, "decreaseRunningTasks", running);
    Reach.call(to, "addSchedulable", tasks);
    Reach.call(to, "increaseRunningTasks", running);
  }

  /** A stage in no pool would never run again: whatever failed on the way, it is in its own. */
  private void putBack(Object tasks, Object home) {
    ((Collection<?>) Reach.call(holdingPool, "schedulableQueue")).remove(tasks);
    if (!((Collection<?>) Reach.call(home, "schedulableQueue")).contains(tasks)) {
      Reach.call(home, "addSchedulable", tasks);
    }
    homes.remove(tasks);
  }

  @Override
  public boolean forgetEnded() {
    if (homes.isEmpty()) {
      return false;
    }
    Collection<?> held = (Collection<?>) Reach.call(holdingPool, "schedulableQueue");
    homes.keySet().retainAll(new HashSet<Object>(held));
    if (held.isEmpty()) {
      Reach.call(rootPool, "removeSchedulable", holdingPool);
      Reach.setNull(holdingPool, "parent_$eq");
    }
    return !homes.isEmpty();
  }

  @Override
  public void setPriority(Work work, int priority) {
    Reach.call(((SparkWork) work).manager, "priority_$eq", priority);
  }

  @Override
  public void revive() {
    Reach.call(backend, "reviveOffers");
  }

  // Jobs.

  @Override
  public Set<Integer> missingJobs(Set<Integer> jobs) {
    if (jobs.isEmpty() || !whyNoActiveJobs().isEmpty()) {
      return Collections.emptySet();
    }
    // Spark's status tracker is made of events, which are dropped as ours are. This is the table of
    // the scheduler's own thread, which may change it meanwhile: a wrong answer is not given twice.
    Object active = Reach.call(Reach.call(context, "dagScheduler"), "jobIdToActiveJob");
    Set<Integer> missing = new HashSet<>(jobs);
    missing.removeIf(job -> (Boolean) Reach.call(active, "contains", job));
    return missing;
  }

  private String whyNoActiveJobs() {
    String why = Reach.missing(context.getClass(), "dagScheduler");
    return why.isEmpty()
        ? Reach.missing(Reach.call(context, "dagScheduler").getClass(), "jobIdToActiveJob")
        : why;
  }

  // Executors.

  @Override
  public Set<String> missingExecutors(Set<String> ids) {
    if (!Reach.missing(backend.getClass(), "getExecutorIds").isEmpty()) {
      return Collections.emptySet();
    }
    Set<String> missing = new HashSet<>(ids);
    scala.collection.Iterator<?> known =
        (scala.collection.Iterator<?>)
            Reach.call(Reach.call(backend, "getExecutorIds"), "iterator");
    while (known.hasNext()) {
      missing.remove(known.next());
    }
    return missing;
  }

  @Override
  public List<ExecutorView> executors() {
    List<ExecutorView> seen = new ArrayList<>();
    Map<String, Integer> running = runningByExecutor();
    boolean canAsk = Reach.missing(scheduler.getClass(), "isExecutorDecommissioned").isEmpty();
    for (Ledger.ExecutorEntry each : ledger.executors()) {
      boolean leaving =
          canAsk && (Boolean) Reach.call(scheduler, "isExecutorDecommissioned", each.id);
      int tasks = running.getOrDefault(each.id, each.running);
      boolean isQuiet = tasks == 0 && each.running == 0;
      long shuffleBytes = keepsShuffle ? 0 : each.shuffleBytes;
      seen.add(
          new ExecutorView(
              each.id, each.host, each.cores, tasks, isQuiet, leaving, shuffleBytes));
    }
    return seen;
  }

  /** As the scheduler counts, which is ahead of what the application has told. */
  private Map<String, Integer> runningByExecutor() {
    Map<String, Integer> counts = new HashMap<>();
    if (Reach.missing(scheduler.getClass(), "runningTasksByExecutors").isEmpty()) {
      scala.collection.Iterator<?> pairs =
          (scala.collection.Iterator<?>)
              Reach.call(Reach.call(scheduler, "runningTasksByExecutors"), "iterator");
      while (pairs.hasNext()) {
        scala.Tuple2<?, ?> pair = (scala.Tuple2<?, ?>) pairs.next();
        counts.put((String) pair._1(), ((Number) pair._2()).intValue());
      }
    }
    return counts;
  }

  @Override
  public String setTarget(int count) {
    return targets.set(count);
  }

  @Override
  public String restoreTarget() {
    return targets.restore();
  }

  @Override
  public int askedFor() {
    return targets.askedFor();
  }

  @Override
  public boolean canRetireBusy() {
    return can("decommission");
  }

  @Override
  public Set<String> withBlocks() {
    Set<String> none = Collections.emptySet();
    Optional<Set<String>> blocks = Belongings.ownersOfBlocks();
    Optional<Set<String>> shuffles =
        keepsShuffle ? Optional.of(none) : Belongings.ownersOfShuffles();
    Set<String> found = new HashSet<>();
    if (blocks.isPresent() && shuffles.isPresent()) {
      found.addAll(blocks.get());
      found.addAll(shuffles.get());
    } else {
      // What cannot be seen may be there.
      ledger.executors().forEach(executor -> found.add(executor.id));
    }
    return found;
  }

  @Override
  public int slots(ExecutorView executor) {
    return coresPerTask == 0 ? 0 : Math.max(1, executor.cores / coresPerTask);
  }

  // Barrier stages.

  private String whyNoBarrier() {
    String why = Ledger.whyNoBarriers();
    if (why.isEmpty()) {
      why = Reach.missing(context.getClass(), "dagScheduler");
    }
    return why.isEmpty()
        ? Reach.missing(
            Reach.call(context, "dagScheduler").getClass(), "barrierJobIdToNumTasksCheckFailures")
        : why;
  }

  @Override
  public boolean hasBarrierTurnedAway() {
    return can("barrier")
        && !((Map<?, ?>)
                Reach.call(
                    Reach.call(context, "dagScheduler"), "barrierJobIdToNumTasksCheckFailures"))
            .isEmpty();
  }

  @Override
  public List<String> retire(List<String> ids) {
    return can("decommission") ? targets.decommission(ids) : targets.dismissIdle(ids);
  }

  /** A TaskSetManager, by reflection. */
  private static final class SparkWork implements Work {
    private final Object manager;
    private final boolean canOrder;
    private final int stage;
    private final int listedPriority;
    private boolean isParked;

    SparkWork(Object manager, boolean isParked, boolean canOrder) {
      this.manager = manager;
      this.isParked = isParked;
      this.canOrder = canOrder;
      this.stage = (Integer) Reach.call(manager, "stageId");
      this.listedPriority = priority();
    }

    @Override
    public int stage() {
      return stage;
    }

    @Override
    public int attempt() {
      return (Integer) Reach.call(Reach.call(manager, "taskSet"), "stageAttemptId");
    }

    @Override
    public int tasks() {
      return (Integer) Reach.call(manager, "numTasks");
    }

    @Override
    public int running() {
      return (Integer) Reach.call(manager, "runningTasks");
    }

    @Override
    public int finished() {
      return (Integer) Reach.call(manager, "tasksSuccessful");
    }

    @Override
    public int priority() {
      return canOrder ? (Integer) Reach.call(manager, "priority") : firstPriority();
    }

    @Override
    public int firstPriority() {
      return (Integer) Reach.call(Reach.call(manager, "taskSet"), "priority");
    }

    @Override
    public boolean isParked() {
      return isParked;
    }

    @Override
    public int barrierSlots() {
      if (!Reach.missing(taskSetClass(), "isBarrier").isEmpty()
          || !(Boolean) Reach.call(manager, "isBarrier")) {
        return 0;
      }
      Object profile = Reach.call(Reach.call(manager, "taskSet"), "resourceProfileId");
      return profile.equals(Ledger.ORDINARY_PROFILE) ? tasks() : Ledger.UNKNOWN_SLOTS;
    }
  }
}
