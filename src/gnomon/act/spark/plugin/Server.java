package gnomon.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.Closeable;
import java.io.IOException;
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

/**
 * Lines of JSON on loopback: one request, one answer. Callers authenticate with a token that lies in
 * a file which only this user can read.
 */
final class Server implements Closeable {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final InetAddress LOOPBACK = InetAddress.getLoopbackAddress();
  /** So long may it take until a token is shown: whoever is on this machine can connect. */
  private static final int FIRST_LINE_MS = 5_000;

  private final Controller controller;
  private final ServerSocket listener;
  private final String token;
  private final Connections connections = new Connections();
  private final int firstLineMs;
  private Path handshake;
  private volatile boolean isClosed;

  Server(Controller controller, int port) throws IOException {
    this(controller, port, FIRST_LINE_MS);
  }

  Server(Controller controller, int port, int firstLineMs) throws IOException {
    this.controller = controller;
    this.firstLineMs = firstLineMs;
    this.listener = new ServerSocket(port, Connections.MOST, LOOPBACK);
    this.token = randomToken();
  }

  int port() {
    return listener.getLocalPort();
  }

  String token() {
    return token;
  }

  void start(String place, String application, String sparkVersion) throws IOException {
    DaemonThreads.named("gnomon-listener").newThread(this::listen).start();
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
      connections.leaveAll();
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
        welcome(listener.accept());
      } catch (Throwable broken) {
        // Out of files or of threads, perhaps: the next caller may find some.
        if (!isClosed) {
          pause();
        }
      }
    }
  }

  private void welcome(Socket caller) {
    connections.admit(caller);
    try {
      DaemonThreads.named("gnomon-caller").newThread(() -> serve(caller)).start();
    } catch (Throwable tooMany) {
      connections.leave(caller);
      throw tooMany;
    }
  }

  private void serve(Socket caller) {
    try {
      caller.setTcpNoDelay(true);
      OutputStream out = caller.getOutputStream();
      LineReader lines = new LineReader(caller, firstLineMs);
      byte[] line = lines.next();
      while (line != null) {
        ObjectNode answer = answer(line, caller);
        out.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
        out.flush();
        if (!connections.isKnown(caller)) {
          return;
        }
        lines.bePatient();
        line = lines.next();
      }
    } catch (Throwable gone) {
      // The caller left, or cannot be served: the lease sees to the rest.
    } finally {
      connections.leave(caller);
    }
  }

  private ObjectNode answer(byte[] line, Socket caller) {
    JsonNode request;
    try {
      request = JSON.readTree(line);
    } catch (IOException rubbish) {
      return Controller.bad("this is no JSON");
    }
    if (request == null || !request.isObject()) {
      return Controller.bad("a request is an object");
    }
    if (!hasToken(request)) {
      return Controller.bad("the token is wrong").put("unknown_caller", true);
    }
    if (!connections.recognise(caller)) {
      return Controller.bad("too many callers are connected");
    }
    return controller.answer(request);
  }

  private boolean hasToken(JsonNode request) {
    byte[] given = request.path("token").asText("").getBytes(StandardCharsets.UTF_8);
    return MessageDigest.isEqual(given, token.getBytes(StandardCharsets.UTF_8));
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
