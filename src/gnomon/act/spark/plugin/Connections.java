package gnomon.spark;

import java.io.IOException;
import java.net.Socket;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** Who is connected: strangers, who have yet to show a token, and those who have. */
final class Connections {
  static final int MOST = 16;

  /** The oldest first. */
  private final Set<Socket> strangers = new LinkedHashSet<>();
  private final Set<Socket> known = new HashSet<>();

  synchronized void admit(Socket caller) {
    if (strangers.size() >= MOST) {
      // The oldest makes room: however many connect and say nothing, they keep nobody out.
      leave(strangers.iterator().next());
    }
    strangers.add(caller);
  }

  /** It has shown a token; false where there is no place for it. */
  synchronized boolean recognise(Socket caller) {
    return known.contains(caller)
        || (strangers.remove(caller) && known.size() < MOST && known.add(caller));
  }

  synchronized boolean isKnown(Socket caller) {
    return known.contains(caller);
  }

  synchronized void leave(Socket caller) {
    strangers.remove(caller);
    known.remove(caller);
    try {
      caller.close();
    } catch (IOException gone) {
      // What cannot be closed any more is closed.
    }
  }

  synchronized void leaveAll() {
    List<Socket> all = new ArrayList<>(strangers);
    all.addAll(known);
    all.forEach(this::leave);
  }
}
