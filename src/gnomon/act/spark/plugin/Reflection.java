package gnomon.spark;

import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Calls by name, for what is not part of Spark's public interface. */
final class Reflection {
  private static final Map<String, Method> KNOWN = new ConcurrentHashMap<>();

  private Reflection() {}

  static Object call(Object target, String name, Object... arguments) {
    Method method = find(target.getClass(), name, arguments.length);
    if (method == null) {
      throw new IllegalStateException(target.getClass().getName() + " has no " + name);
    }
    return invoke(target, method, arguments);
  }

  /** As call, for a single argument that is null. */
  static void setNull(Object target, String name) {
    invoke(target, find(target.getClass(), name, 1), new Object[] {null});
  }

  /** "" where a class has all of these, else which it lacks. */
  static String missing(Class<?> type, String... names) {
    for (String name : names) {
      if (find(type, name, -1) == null) {
        return type.getSimpleName() + "." + name + " is missing in this Spark";
      }
    }
    return "";
  }

  /** A field by its name, or by the end of it: Scala prefixes what closures use. Null if none. */
  static Field field(Object target, String name) {
    for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name) || field.getName().endsWith("$$" + name)) {
          field.setAccessible(true);
          return field;
        }
      }
    }
    return null;
  }

  static Method find(Class<?> type, String name, int arguments) {
    String key = type.getName() + '#' + name + '/' + arguments;
    Method known = KNOWN.get(key);
    if (known != null) {
      return known;
    }
    for (Method method : methods(type)) {
      boolean fits = arguments < 0 || method.getParameterCount() == arguments;
      // A bridge of a Java generic would lead to the same place by a detour.
      if (method.getName().equals(name) && fits && !method.isBridge()) {
        method.setAccessible(true);
        KNOWN.put(key, method);
        return method;
      }
    }
    return null;
  }

  /** None where one of them speaks of a class that is not there: the JVM then names none at all. */
  private static Method[] methods(Class<?> type) {
    try {
      return type.getMethods();
    } catch (LinkageError incomplete) {
      return new Method[0];
    }
  }

  private static Object invoke(Object target, Method method, Object[] arguments) {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException failure) {
      throw new IllegalStateException(failure.getCause());
    } catch (IllegalAccessException | IllegalArgumentException wrong) {
      throw new IllegalStateException(wrong);
    }
  }
}
