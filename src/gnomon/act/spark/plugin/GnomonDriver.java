package gnomon.spark;

import java.util.Collections;
import java.util.Map;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The life of the plugin in a driver: it listens once the application has its id, and is gone when
 * the application ends. Whatever goes wrong here is logged: the application never fails by it.
 */
final class GnomonDriver implements DriverPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(GnomonDriver.class);

  private SparkContext context;
  private ActivityListener activity;
  private Controller controller;
  private Server server;

  @Override
  public Map<String, String> init(SparkContext sparkContext, PluginContext pluginContext) {
    try {
      context = sparkContext;
      activity = new ActivityListener();
      listen(sparkContext, activity);
    } catch (Throwable failure) {
      LOG.warn("gnomon does not see this application", failure);
    }
    return Collections.emptyMap();
  }

  /** In a queue of its own: in the shared one events are dropped when another listener is slow. */
  private static void listen(SparkContext context, ActivityListener activity) {
    if (Reflection.missing(SparkContext.class, "listenerBus").isEmpty()) {
      Object bus = Reflection.call(context, "listenerBus");
      if (Reflection.missing(bus.getClass(), "addToQueue").isEmpty()) {
        Reflection.call(bus, "addToQueue", activity, "gnomon");
        return;
      }
    }
    context.addSparkListener(activity);
  }

  @Override
  public void registerMetrics(String applicationId, PluginContext pluginContext) {
    try {
      start(applicationId, pluginContext.conf());
    } catch (Throwable failure) {
      LOG.warn("gnomon cannot be reached in this application", failure);
      shutdown();
    }
  }

  private void start(String applicationId, SparkConf conf) throws Exception {
    String handshake = conf.get("spark.gnomon.handshake", "");
    if (handshake.isEmpty()) {
      LOG.warn("spark.gnomon.handshake is not set: gnomon does not listen");
      return;
    }
    SparkSchedulerAccess access = new SparkSchedulerAccess(context, activity, conf);
    controller = new Controller(access, activity, applicationId, Settings.of(conf));
    controller.start();
    server = new Server(controller, conf.getInt("spark.gnomon.port", 0));
    server.start(handshake, applicationId, context.version());
    LOG.info("gnomon listens on 127.0.0.1:{}; {}", server.port(), access.capabilities());
  }

  @Override
  public void shutdown() {
    if (server != null) {
      server.close();
    }
    if (controller != null) {
      controller.close();
    }
  }
}
