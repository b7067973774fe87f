package gnomon.spark;

import java.util.concurrent.ThreadFactory;

/** Threads that never keep a driver alive. */
final class DaemonThreads {
  private DaemonThreads() {}

  static ThreadFactory named(String name) {
    return task -> {
      Thread thread = new Thread(task, name);
      thread.setDaemon(true);
      return thread;
    };
  }
}
