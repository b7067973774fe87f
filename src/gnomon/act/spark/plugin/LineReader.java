package gnomon.spark;

import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.concurrent.TimeUnit;

/** What a caller sends, line by line: none longer than any request, and none too late. */
final class LineReader {
  private static final int LONGEST = 1 << 20;
  private static final int SILENCE_MS = 600_000;

  private final Socket caller;
  private final InputStream in;
  private final long deadlineNs;
  private boolean isPatient;

  /** Everything has to be there within so many milliseconds, until `bePatient`. */
  LineReader(Socket caller, int withinMs) throws IOException {
    this.caller = caller;
    this.in = new BufferedInputStream(caller.getInputStream());
    this.deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(withinMs);
  }

  /** From here on it may be silent for long. */
  void bePatient() throws IOException {
    isPatient = true;
    caller.setSoTimeout(SILENCE_MS);
  }

  /** A line without its end; null at the end, or where a line is longer than any request. */
  byte[] next() throws IOException {
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    int next;
    while ((next = read()) >= 0) {
      if (next == '\n') {
        return line.toByteArray();
      }
      if (line.size() >= LONGEST) {
        return null;
      }
      line.write(next);
    }
    return null;
  }

  private int read() throws IOException {
    if (!isPatient) {
      // For each byte anew: who sends one now and then is to be no better off.
      caller.setSoTimeout(millisecondsLeft());
    }
    return in.read();
  }

  private int millisecondsLeft() throws IOException {
    long leftNs = deadlineNs - System.nanoTime();
    if (leftNs <= 0) {
      throw new SocketTimeoutException("no request in time");
    }
    return 1 + (int) TimeUnit.NANOSECONDS.toMillis(leftNs); // 0 would be for ever
  }
}
