package gnomon.spark;

import java.util.HashSet;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.SparkEnv;

/**
 * Which executors hold data that would be lost with them. Asked of those who keep the books of
 * Spark: the events that tell the same come later.
 */
final class Belongings {
  private Belongings() {}

  /** Owners of cached blocks, copies of a broadcast aside; empty where this Spark does not say. */
  static Optional<Set<String>> ownersOfBlocks() {
    // Not by name: SparkEnv's methods speak of classes that a Spark need not bring.
    Object master = Reach.call(SparkEnv.get().blockManager(), "master");
    if (!Reach.missing(master.getClass(), "getStorageStatus").isEmpty()) {
      return Optional.empty();
    }
    Set<String> owners = new HashSet<>();
    for (Object status : (Object[]) Reach.call(master, "getStorageStatus")) {
      scala.collection.Iterator<?> blocks = iterator(Reach.call(status, "blocks"), "keysIterator");
      boolean isOwner = false;
      while (blocks.hasNext() && !isOwner) {
        isOwner = !(Boolean) Reach.call(blocks.next(), "isBroadcast");
      }
      if (isOwner) {
        owners.add(executor(Reach.call(status, "blockManagerId")));
      }
    }
    return Optional.of(owners);
  }

  /** Owners of shuffle output that a later stage may read; empty where this Spark does not say. */
  static Optional<Set<String>> ownersOfShuffles() {
    Object tracker = SparkEnv.get().mapOutputTracker();
    if (!Reach.missing(tracker.getClass(), "shuffleStatuses").isEmpty()) {
      return Optional.empty();
    }
    Set<String> owners = new HashSet<>();
    scala.collection.Iterator<?> shuffles =
        iterator(Reach.call(tracker, "shuffleStatuses"), "valuesIterator");
    while (shuffles.hasNext()) {
      Object shuffle = shuffles.next();
      if (!Reach.missing(shuffle.getClass(), "withMapStatuses").isEmpty()) {
        return Optional.empty();
      }
      scala.Function1<Object[], Object> note = outputs -> addOwners(outputs, owners);
      Reach.call(shuffle, "withMapStatuses", note);
    }
    return Optional.of(owners);
  }

  private static Object addOwners(Object[] outputs, Set<String> into) {
    for (Object output : outputs) {
      if (output != null) { // else it has not been computed yet
        into.add(executor(Reach.call(output, "location")));
      }
    }
    return null;
  }

  private static String executor(Object blockManagerId) {
    return (String) Reach.call(blockManagerId, "executorId");
  }

  private static scala.collection.Iterator<?> iterator(Object owner, String name) {
    return (scala.collection.Iterator<?>) Reach.call(owner, name);
  }
}
