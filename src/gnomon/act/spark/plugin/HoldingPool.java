package gnomon.spark;

import org.apache.spark.scheduler.Pool;
import org.apache.spark.scheduler.SchedulingMode;
import org.apache.spark.scheduler.TaskSetManager;
import scala.collection.mutable.ArrayBuffer;

/**
 * A pool whose stages are never offered an executor.
 *
 * <p>A stage that is merely taken out of its pool no longer hears that an executor was lost: tasks
 * that ran there would count as running for ever. In here it hears everything, and waits.
 */
final class HoldingPool extends Pool {
  HoldingPool() {
    super("gnomon-held", SchedulingMode.FIFO(), 0, 1);
  }

  @Override
  public ArrayBuffer<TaskSetManager> getSortedTaskSetQueue() {
    return new ArrayBuffer<>();
  }
}
