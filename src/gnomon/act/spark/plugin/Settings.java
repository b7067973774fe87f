package gnomon.spark;

import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkConf;

/** Times that the safety rules go by, in nanoseconds. */
final class Settings {
  /** Without a request for so long, everything is given back. */
  final long leaseNs;
  /** So long may nothing run while a held stage waits: the gap between two stages is shorter. */
  final long idleNs;
  /** How long stages that we do not hold may wait without a running task, before a held one is let go. */
  final long stuckNs;

  Settings(long leaseNs, long idleNs, long stuckNs) {
    this.leaseNs = leaseNs;
    this.idleNs = idleNs;
    this.stuckNs = stuckNs;
  }

  static Settings of(SparkConf conf) {
    return new Settings(
        millis(conf, "spark.gnomon.lease", "10s"),
        millis(conf, "spark.gnomon.idle", "500ms"),
        millis(conf, "spark.gnomon.stuck", "15s"));
  }

  private static long millis(SparkConf conf, String key, String otherwise) {
    return TimeUnit.MILLISECONDS.toNanos(conf.getTimeAsMs(key, otherwise));
  }
}
