package gnomon.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;

/**
 * Lines of JSON on loopback: one request, one answer. Who may ask is told by a token that lies in
 * a file which only this user can read.
 */
final class Server implements Closeable {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final InetAddress LOOPBACK = InetAddress.getLoopbackAddress();
  private static final int LONGEST_LINE = 1 << 20;
  private static final int MOST_CALLERS = 16;
  private static final int SILENCE_MS = 600_000;

  private final Controller controller;
  private final ServerSocket listener;
  private final String token;
  private final Semaphore places = new Semaphore(MOST_CALLERS);
  private final Set<Socket> open = ConcurrentHashMap.newKeySet();
  private Path handshake;
  private volatile boolean isClosed;

  Server(Controller controller, int port) throws IOException {
    this.controller = controller;
    this.listener = new ServerSocket(port, MOST_CALLERS, LOOPBACK);
    this.token = randomToken();
  }

  int port() {
    return listener.getLocalPort();
  }

  String token() {
    return token;
  }

  void start(String place, String application, String sparkVersion) throws IOException {
    Daemons.named("gnomon-listener").newThread(this::listen).start();
    ObjectNode facts = JSON.createObjectNode();
    facts.put("host", LOOPBACK.getHostAddress()).put("port", port()).put("token", token);
    facts.put("application", application).put("spark", sparkVersion);
    handshake = Paths.get(place).toAbsolutePath();
    // Whole or not at all, and never readable by others, not even for a moment.
    Path fresh =
        Files.createTempFile(
            handshake.getParent(),
            ".gnomon-handshake",
            "",
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
    Files.write(fresh, JSON.writeValueAsBytes(facts));
    Files.move(
        fresh, handshake, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  @Override
  public void close() {
    isClosed = true;
    try {
      listener.close();
      for (Socket socket : open) {
        socket.close();
      }
      removeHandshake();
    } catch (IOException gone) {
      // What cannot be closed any more is closed.
    }
  }

  private void removeHandshake() throws IOException {
    // The next application may have written its own in the meantime.
    if (handshake != null && Files.exists(handshake)) {
      JsonNode facts = JSON.readTree(Files.readAllBytes(handshake));
      if (token.equals(facts.path("token").asText())) {
        Files.delete(handshake);
      }
    }
  }

  private void listen() {
    while (!isClosed) {
      try {
        Socket socket = listener.accept();
        if (places.tryAcquire()) {
          Daemons.named("gnomon-caller").newThread(() -> serve(socket)).start();
        } else {
          socket.close();
        }
      } catch (IOException broken) {
        if (!isClosed) {
          pause();
        }
      }
    }
  }

  private void serve(Socket socket) {
    open.add(socket);
    try (Socket caller = socket) {
      caller.setSoTimeout(SILENCE_MS);
      caller.setTcpNoDelay(true);
      InputStream in = new java.io.BufferedInputStream(caller.getInputStream());
      OutputStream out = caller.getOutputStream();
      byte[] line;
      boolean isKnown = true;
      while (isKnown && (line = readLine(in)) != null) {
        ObjectNode answer = answer(line);
        isKnown = !answer.path("unknown_caller").asBoolean(false);
        out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
        out.flush();
      }
    } catch (IOException gone) {
      // The caller left: the lease sees to the rest.
    } finally {
      open.remove(socket);
      places.release();
    }
  }

  private ObjectNode answer(byte[] line) {
    JsonNode request;
    try {
      request = JSON.readTree(line);
    } catch (IOException rubbish) {
      return Controller.bad("this is no JSON");
    }
    if (request == null || !request.isObject()) {
      return Controller.bad("a request is an object");
    }
    byte[] given = request.path("token").asText("").getBytes(StandardCharsets.UTF_8);
    if (!MessageDigest.isEqual(given, token.getBytes(StandardCharsets.UTF_8))) {
      return Controller.bad("the token is wrong").put("unknown_caller", true);
    }
    return controller.answer(request);
  }

  /** A line without its end; null at the end, or where a line is longer than any request. */
  private static byte[] readLine(InputStream in) throws IOException {
    ByteArrayOutputStream line = new ByteArrayOutputStream();
    int next;
    while ((next = in.read()) >= 0) {
      if (next == '\n') {
        return line.toByteArray();
      }
      if (line.size() >= LONGEST_LINE) {
        return null;
      }
      line.write(next);
    }
    return null;
  }

  private static String randomToken() {
    byte[] bytes = new byte[32];
    new SecureRandom().nextBytes(bytes);
    StringBuilder text = new StringBuilder();
    for (byte each : bytes) {
      text.append(String.format("%02x", each));
    }
    return text.toString();
  }

  private static void pause() {
    try {
      Thread.sleep(100);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
  }
}
