package gnomon.spark;

import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/** What spark.plugins names. It lives in the driver alone. */
public final class GnomonPlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new GnomonDriver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return null;
  }
}
