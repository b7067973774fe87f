package gnomon.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a request asks for, read and found to make sense. */
final class ControlRequest {
  final List<Integer> hold;
  final List<Integer> release;
  /** By stage; null gives Spark's own back. */
  final Map<Integer, Integer> priority;
  final boolean hasTarget;
  /** Null gives back what was before. */
  final Integer target;

  private ControlRequest(JsonNode request) {
    hold = stages(request, "hold");
    release = stages(request, "release");
    priority = priorities(request.path("priority"));
    hasTarget = request.has("target");
    target = hasTarget && !request.get("target").isNull() ? count(request.get("target")) : null;
  }

  /** Throws IllegalArgumentException where something makes none. */
  static ControlRequest of(JsonNode request) {
    return new ControlRequest(request);
  }

  private static List<Integer> stages(JsonNode request, String name) {
    JsonNode given = request.path(name);
    if (!given.isMissingNode() && !given.isArray()) {
      throw new IllegalArgumentException(name + " is a list of stages, not " + given);
    }
    List<Integer> numbers = new ArrayList<>();
    for (JsonNode each : given) {
      numbers.add(whole(each, "a stage"));
    }
    return numbers;
  }

  private static Map<Integer, Integer> priorities(JsonNode given) {
    if (!given.isMissingNode() && !given.isObject()) {
      throw new IllegalArgumentException("priority maps stages to numbers, not " + given);
    }
    Map<Integer, Integer> numbers = new LinkedHashMap<>();
    for (Iterator<String> names = given.fieldNames(); names.hasNext(); ) {
      String name = names.next();
      JsonNode value = given.get(name);
      numbers.put(stage(name), value.isNull() ? null : whole(value, "a priority"));
    }
    return numbers;
  }

  private static int stage(String text) {
    try {
      return Integer.parseInt(text);
    } catch (NumberFormatException wrong) {
      throw new IllegalArgumentException("a stage is a whole number, not '" + text + "'");
    }
  }

  private static int count(JsonNode given) {
    int number = whole(given, "a target");
    if (number < 1) {
      throw new IllegalArgumentException("a target is 1 at least, not " + number);
    }
    return number;
  }

  private static int whole(JsonNode given, String what) {
    if (!given.isIntegralNumber() || !given.canConvertToInt()) {
      throw new IllegalArgumentException(what + " is a whole number, not " + given);
    }
    return given.intValue();
  }
}
