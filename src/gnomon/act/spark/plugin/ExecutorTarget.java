package gnomon.spark;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.spark.SparkConf;

/**
 * How many executors a Spark asks its cluster for. With dynamic allocation Spark moves the number
 * itself, and what is moved here is the ceiling it keeps to.
 */
final class ExecutorTarget {
  private final Object context;
  private final Object backend;
  private final SparkConf conf;
  private final boolean isDynamic;
  private boolean isMoved;
  private int before;
  private int ceilingBefore;
  private int floorBefore;

  ExecutorTarget(Object context, Object backend, SparkConf conf) {
    this.context = context;
    this.backend = backend;
    this.conf = conf;
    this.isDynamic = manager() != null;
  }

  // What there is.

  String whyNoTarget() {
    if (isDynamic) {
      return "dynamic allocation moves the number itself";
    }
    return hasClient() ? "" : "this scheduler has no executors to ask for";
  }

  String whyNoCeiling() {
    if (!isDynamic) {
      return "dynamic allocation is off";
    }
    for (String name : new String[] {"maxNumExecutors", "minNumExecutors"}) {
      Field field = Reflection.field(manager(), name);
      if (field == null || field.getType() != int.class) {
        return "ExecutorAllocationManager." + name + " is missing in this Spark";
      }
    }
    return hasClient() ? "" : "this scheduler has no executors to ask for";
  }

  String whyNoDecommission() {
    if (!conf.getBoolean("spark.decommission.enabled", false)) {
      return "spark.decommission.enabled is not set";
    }
    if (conf.contains("spark.executor.decommission.forceKillTimeout")) {
      return "spark.executor.decommission.forceKillTimeout would kill running tasks";
    }
    try {
      Class.forName("org.apache.spark.scheduler.ExecutorDecommissionInfo");
    } catch (ClassNotFoundException none) {
      return "this Spark cannot decommission executors";
    }
    return Reflection.missing(backend.getClass(), "decommissionExecutor");
  }

  private boolean hasClient() {
    return Reflection.missing(context.getClass(), "requestTotalExecutors").isEmpty()
        && Reflection.missing(backend.getClass(), "requestTotalExecutors").isEmpty();
  }

  /** Spark's own allocation manager; null where dynamic allocation is off. */
  private Object manager() {
    if (!Reflection.missing(context.getClass(), "executorAllocationManager").isEmpty()) {
      return null;
    }
    Object found = Reflection.call(context, "executorAllocationManager");
    return (Boolean) Reflection.call(found, "isDefined") ? Reflection.call(found, "get") : null;
  }

  // What is done.

  String set(int count) {
    if (!isMoved) {
      before = requestedExecutors();
      if (isDynamic) {
        ceilingBefore = get("maxNumExecutors");
        floorBefore = get("minNumExecutors");
      }
      isMoved = true;
    }
    // Spark's ceiling is its user's: it is lowered, never raised.
    return isDynamic
        ? moveCeiling(Math.min(count, ceilingBefore), Math.min(count, floorBefore))
        : ask(count);
  }

  String restore() {
    if (!isMoved) {
      return "";
    }
    String why = isDynamic ? moveCeiling(ceilingBefore, floorBefore) : ask(ordinary());
    isMoved = !why.isEmpty();
    return why;
  }

  /** What the application would ask for by itself. */
  private int ordinary() {
    if (before >= 0) {
      return before;
    }
    // A standalone master gives whatever spark.cores.max allows, unless it is limited.
    boolean isStandalone = conf.get("spark.master", "").startsWith("spark://")
        || conf.get("spark.master", "").startsWith("local-cluster");
    return isStandalone ? Integer.MAX_VALUE : conf.getInt("spark.executor.instances", 2);
  }

  /** The total that was last asked for; -1 where nobody has asked yet. */
  int requestedExecutors() {
    Field field = Reflection.field(backend, "requestedTotalExecutorsPerResourceProfile");
    if (field == null) {
      return -1;
    }
    synchronized (backend) {
      Object totals = value(field, backend);
      if ((Boolean) Reflection.call(totals, "isEmpty")) {
        return -1;
      }
      long sum = 0;
      scala.collection.Iterator<?> values =
          (scala.collection.Iterator<?>) Reflection.call(Reflection.call(totals, "values"), "iterator");
      while (values.hasNext()) {
        sum += ((Number) values.next()).longValue();
      }
      return (int) Math.min(sum, Integer.MAX_VALUE);
    }
  }

  private String ask(int count) {
    Object done =
        Reflection.call(context, "requestTotalExecutors", count, 0, scala.collection.immutable.Map$.MODULE$.empty());
    return (Boolean) done ? "" : "the cluster manager did not agree";
  }

  private String moveCeiling(int ceiling, int minimum) {
    Object manager = manager();
    boolean isAbove;
    synchronized (manager) {
      put(manager, "maxNumExecutors", ceiling);
      put(manager, "minNumExecutors", minimum);
      isAbove = lowerOwnTarget(manager, ceiling);
    }
    // Without this it would ask again for what it has asked for already.
    return isAbove ? ask(ceiling) : "";
  }

  /**
   * Spark's own target never sinks while there is work to do: it is brought under the ceiling.
   * With several resource profiles a total says nothing about each, and only the ceiling moves.
   */
  @SuppressWarnings("unchecked")
  private boolean lowerOwnTarget(Object manager, int ceiling) {
    Field field = Reflection.field(manager, "numExecutorsTargetPerResourceProfileId");
    if (field == null) {
      return false;
    }
    scala.collection.mutable.Map<Object, Object> target =
        (scala.collection.mutable.Map<Object, Object>) value(field, manager);
    if (target.size() != 1) {
      return false;
    }
    Object profile = target.keysIterator().next();
    if (((Number) target.apply(profile)).intValue() <= ceiling) {
      return false;
    }
    target.update(profile, ceiling);
    return true;
  }

  /** Graceful: each leaves when its running tasks have ended. */
  List<String> decommission(List<String> ids) {
    Object why = newDecommissionInfo();
    List<String> leaving = new ArrayList<>();
    for (String id : ids) {
      // The target was lowered before, and is not to be lowered once more.
      if ((Boolean) Reflection.call(backend, "decommissionExecutor", id, why, false, false)) {
        leaving.add(id);
      }
    }
    return leaving;
  }

  private static Object newDecommissionInfo() {
    try {
      return Class.forName("org.apache.spark.scheduler.ExecutorDecommissionInfo")
          .getConstructor(String.class, scala.Option.class)
          .newInstance("gnomon lowered the number of executors", scala.Option.empty());
    } catch (ReflectiveOperationException missing) {
      throw new IllegalStateException(missing);
    }
  }

  /** Ends executors, of which Spark itself leaves out those that run something by now. */
  List<String> dismissIdle(List<String> ids) {
    if (!Reflection.missing(backend.getClass(), "killExecutors").isEmpty()) {
      return Collections.emptyList();
    }
    scala.collection.mutable.ListBuffer<String> list = new scala.collection.mutable.ListBuffer<>();
    for (String id : ids) {
      list.$plus$eq(id);
    }
    boolean adjustTarget = false;
    boolean countFailures = false;
    boolean force = false;
    Object gone =
        Reflection.call(backend, "killExecutors", list.toList(), adjustTarget, countFailures, force);
    List<String> leaving = new ArrayList<>();
    scala.collection.Iterator<?> each =
        (scala.collection.Iterator<?>) Reflection.call(gone, "iterator");
    while (each.hasNext()) {
      leaving.add(each.next().toString());
    }
    return leaving;
  }

  private int get(String name) {
    Object manager = manager();
    return (Integer) value(Reflection.field(manager, name), manager);
  }

  private static void put(Object manager, String name, int number) {
    try {
      Reflection.field(manager, name).setInt(manager, number);
    } catch (IllegalAccessException refused) {
      throw new IllegalStateException(refused);
    }
  }

  private static Object value(Field field, Object owner) {
    try {
      return field.get(owner);
    } catch (IllegalAccessException refused) {
      throw new IllegalStateException(refused);
    }
  }
}
