package gnomon.spark;

import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.SparkEnv;

/**
 * Which executors hold data that would be lost with them. Asked of those who keep the books of
 * Spark: the events that tell the same come later.
 */
final class ExecutorBlocks {
  private ExecutorBlocks() {}

  /** Owners of cached blocks, copies of a broadcast aside; empty where this Spark does not say. */
  static Optional<Set<String>> ownersOfBlocks() {
    // Not by name: SparkEnv's methods speak of classes that a Spark need not bring.
    Object master = Reflection.call(SparkEnv.get().blockManager(), "master");
    if (!Reflection.missing(master.getClass(), "getStorageStatus").isEmpty()) {
      return Optional.empty();
    }
    Set<String> owners = new HashSet<>();
    for (Object status : (Object[]) Reflection.call(master, "getStorageStatus")) {
      scala.collection.Iterator<?> blocks = iterator(Reflection.call(status, "blocks"), "keysIterator");
      boolean isOwner = false;
      while (blocks.hasNext() && !isOwner) {
        isOwner = !(Boolean) Reflection.call(blocks.next(), "isBroadcast");
      }
      if (isOwner) {
        owners.add(executor(Reflection.call(status, "blockManagerId")));
      }
    }
    return Optional.of(owners);
  }

  /** Owners of shuffle output that a later stage may read; empty where this Spark does not say. */
  static Optional<Set<String>> ownersOfShuffles() {
    Object tracker = SparkEnv.get().mapOutputTracker();
    if (!Reflection.missing(tracker.getClass(), "shuffleStatuses").isEmpty()) {
      return Optional.empty();
    }
    Set<String> owners = new HashSet<>();
    scala.collection.Iterator<?> shuffles =
        iterator(Reflection.call(tracker, "shuffleStatuses"), "valuesIterator");
    while (shuffles.hasNext()) {
      Object shuffle = shuffles.next();
      if (!Reflection.missing(shuffle.getClass(), "withMapStatuses").isEmpty()) {
        return Optional.empty();
      }
      scala.Function1<Object[], Object> note = outputs -> addOwners(outputs, owners);
      Reflection.call(shuffle, "withMapStatuses", note);
    }
    return Optional.of(owners);
  }

  private static Object addOwners(Object[] outputs, Set<String> into) {
    for (Object output : outputs) {
      if (output != null) { // else it has not been computed yet
        into.add(executor(Reflection.call(output, "location")));
      }
    }
    return null;
  }

  private static String executor(Object blockManagerId) {
    return (String) Reflection.call(blockManagerId, "executorId");
  }

  private static scala.collection.Iterator<?> iterator(Object owner, String name) {
    return (scala.collection.Iterator<?>) Reflection.call(owner, name);
  }
}
