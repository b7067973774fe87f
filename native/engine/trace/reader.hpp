// Reads Chrome trace JSON (what the PyTorch profiler writes) as it comes in, into columns.
//
// The text may arrive in pieces of any size; only the event at hand is kept, so memory is that of
// the columns. Only complete events ("ph": "X") become rows; begin/end pairs and events without
// an end are counted. What is no JSON is refused; numbers such as NaN or inf, which profilers do
// write, are let through where nobody asks for their value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace gnomon {

/// Each distinct text once.
class TextTable {
public:
    std::int32_t code(std::string_view text);
    [[nodiscard]] const std::vector<std::string>& texts() const { return texts_; }

private:
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> codes_;
    std::vector<std::string> texts_;
};

struct TraceColumns {
    std::vector<std::int32_t> category, name, thread;
    std::vector<std::int64_t> start_ns, duration_ns;
    std::vector<std::int64_t> correlation, stream, device, bytes;  // -1 (bytes: 0) where absent
    std::vector<std::int32_t> shape, extra;                        // code 0 (of no text) where absent
};

class TraceReader {
public:
    TraceReader();
    /// Takes the next piece of text. Throws std::invalid_argument at what cannot be a trace.
    void feed(std::string_view text);
    /// Says that there is no more; throws when something was left open.
    void finish();

    TraceColumns columns;
    TextTable categories, names, threads;  // a thread is "pid\ttid", strings keep their quotes
    TextTable shapes;                      // raw "dims\ttypes\tvalues" of an operator's inputs
    TextTable extras;                      // what tells collectives and event waits apart, a JSON object
    std::string device_properties, distributed_info, base_time;  // raw JSON
    std::int64_t events = 0;                                     // objects in traceEvents
    std::int64_t without_end = 0;                                // complete events that lack a duration
    std::int64_t begin_end = 0;                                  // events of begin/end pairs, not read
    std::int64_t odd_arguments = 0;                              // events whose args are no object

private:
    enum class Place : std::uint8_t {
        before,
        want_key,
        want_colon,
        want_value,
        want_comma,
        want_event,
        want_event_comma,
        done
    };
    enum class Scanning : std::uint8_t { nothing, key, kept, skipped, event };

    void step(char c);
    void begin_scan(Scanning what, char first);
    bool scan(std::string_view text, std::size_t& at);
    void end_scan(std::string_view value);
    std::size_t read_event(std::string_view text);
    std::size_t read_event_in_place(std::string_view text);
    std::int32_t shape_code(std::string_view dims, std::string_view types, std::string_view values);
    [[noreturn]] void fail(const std::string& what) const;

    Place place_ = Place::before;
    Scanning scanning_ = Scanning::nothing;
    bool bare_list_ = false;  // the file is the list of events itself
    bool saw_events_ = false;
    std::string key_;
    std::string pending_;  // the value at hand, as far as earlier pieces brought it
    std::string scratch_, name_, category_, thread_, extra_;
    // Inside the value at hand:
    std::int64_t depth_ = 0;
    bool in_string_ = false, escaped_ = false, is_scalar_ = false;
};

}  // namespace gnomon
