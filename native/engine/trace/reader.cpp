#include "engine/trace/reader.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "engine/index.hpp"
#include "engine/json_cursor.hpp"

namespace gnomon {
namespace {

/// No real event comes near; a file that is one endless string must not fill the memory.
constexpr std::size_t longest_value = std::size_t{64} << 20;

bool is_space(char c) { return JsonCursor::is_space(c); }

/// Which bytes end a run of others.
using Bytes = std::array<bool, 256>;
constexpr Bytes bytes_of(std::string_view chosen) {
    Bytes table{};
    for (const char c : chosen) table[static_cast<unsigned char>(c)] = true;
    return table;
}
constexpr Bytes ends_scalar = bytes_of(",}] \n\t\r");
constexpr Bytes ends_string_run = bytes_of("\"\\");
constexpr Bytes ends_structure_run = bytes_of("\"{}[]");
unsigned char byte(char c) { return static_cast<unsigned char>(c); }

/// Arguments that tell collectives and event waits apart.
bool is_extra(std::string_view key) {
    constexpr std::string_view kept[] = {
        "Collective name",
        "dtype",
        "In msg nelems",
        "Out msg nelems",
        "Process Group Name",
        "Process Group Ranks",
        "Src Rank",
        "Dst Rank",
        "Seq",
        "wait_on_stream",
        "wait_on_cuda_event_record_corr_id",
        "wait_on_cuda_event_id",
    };
    return std::find(std::begin(kept), std::end(kept), key) != std::end(kept);
}

}  // namespace

std::int32_t TextTable::code(std::string_view text) {
    if (const auto found = codes_.find(text); found != codes_.end()) return found->second;
    const auto fresh = static_cast<std::int32_t>(texts_.size());
    texts_.emplace_back(text);
    codes_.emplace(texts_.back(), fresh);
    return fresh;
}

TraceReader::TraceReader() {
    shapes.code({});
    extras.code({});
}

void TraceReader::fail(const std::string& what) const { throw std::invalid_argument(what); }

void TraceReader::feed(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        if (scanning_ == Scanning::nothing) {
            if (is_space(text[at])) {
                ++at;
                continue;
            }
            if (place_ == Place::want_event && text[at] == '{') {
                if (const std::size_t used = read_event_in_place(text.substr(at))) {
                    at += used;
                    continue;
                }
            }
            step(text[at]);
            if (scanning_ == Scanning::nothing) {
                ++at;
                continue;
            }
        }
        // A value that lies whole in this piece is read where it lies; one that continues is kept.
        const std::size_t begin = at;
        const bool is_whole = scan(text, at);
        const auto part = text.substr(begin, at - begin);
        if (is_whole && pending_.empty()) {
            end_scan(part);
            continue;
        }
        if (scanning_ != Scanning::skipped) {
            if (pending_.size() + part.size() > longest_value) fail("holds a value of more than 64 MiB");
            pending_.append(part);
        }
        if (is_whole) {
            const std::string value = std::move(pending_);
            pending_.clear();
            end_scan(value);
        }
    }
}

/// What a character outside all values means.
void TraceReader::step(char c) {
    switch (place_) {
        case Place::before:
            if (c == '{') {
                place_ = Place::want_key;
            } else if (c == '[') {
                bare_list_ = saw_events_ = true;
                place_ = Place::want_event;
            } else if (static_cast<unsigned char>(c) != 0xEF && static_cast<unsigned char>(c) != 0xBB &&
                       static_cast<unsigned char>(c) != 0xBF) {  // a byte order mark
                fail("not JSON");
            }
            return;
        case Place::want_key:
            if (c == '"') return begin_scan(Scanning::key, c);
            if (c != '}') fail("not JSON: a key was expected");
            place_ = Place::done;
            return;
        case Place::want_colon:
            if (c != ':') fail("not JSON: ':' was expected");
            place_ = Place::want_value;
            return;
        case Place::want_value:
            if (key_ == "traceEvents") {
                if (c != '[') fail("not a trace: 'traceEvents' is no list");
                saw_events_ = true;
                place_ = Place::want_event;
                return;
            }
            return begin_scan(key_ == "deviceProperties" || key_ == "distributedInfo" || key_ == "baseTimeNanoseconds"
                                  ? Scanning::kept
                                  : Scanning::skipped,
                              c);
        case Place::want_comma:
            if (c != ',' && c != '}') fail("not JSON: ',' was expected");
            place_ = c == ',' ? Place::want_key : Place::done;
            return;
        case Place::want_event:
            if (c == ']') {
                place_ = bare_list_ ? Place::done : Place::want_comma;
                return;
            }
            if (c != '{') fail("not a trace: event " + std::to_string(events) + " is no object");
            return begin_scan(Scanning::event, c);
        case Place::want_event_comma:
            if (c != ',' && c != ']') fail("not JSON: ',' was expected");
            place_ = c == ',' ? Place::want_event : bare_list_ ? Place::done : Place::want_comma;
            return;
        case Place::done: fail("not JSON: there is text behind its end");
    }
}

void TraceReader::begin_scan(Scanning what, char first) {
    scanning_ = what;
    pending_.clear();
    depth_ = 0;
    in_string_ = escaped_ = false;
    is_scalar_ = first != '"' && first != '{' && first != '[';
    if (first == ',' || first == '}' || first == ']' || first == ':') fail("not JSON: a value was expected");
}

/// Moves behind the value at hand, or to the end of the text; true when the value is complete.
bool TraceReader::scan(std::string_view text, std::size_t& at) {
    if (is_scalar_) {
        while (at < text.size() && !ends_scalar[byte(text[at])]) ++at;
        return at < text.size();
    }
    // State in registers: most of a trace's bytes pass through these two loops.
    const char* here = text.data() + at;
    const char* const end = text.data() + text.size();
    std::int64_t depth = depth_;
    bool in_string = in_string_, is_whole = false;
    if (escaped_ && here != end) {
        ++here;
        escaped_ = false;
    }
    while (here != end && !is_whole) {
        if (in_string) {
            while (here != end && !ends_string_run[byte(*here)]) ++here;
            if (here == end) break;
            if (*here++ == '"') {
                in_string = false;
                is_whole = depth == 0;
            } else if (here == end) {
                escaped_ = true;
            } else {
                ++here;
            }
            continue;
        }
        while (here != end && !ends_structure_run[byte(*here)]) ++here;
        if (here == end) break;
        const char c = *here++;
        if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            ++depth;
        } else {
            is_whole = --depth == 0;
        }
    }
    depth_ = depth;
    in_string_ = in_string;
    at = index(here - text.data());
    return is_whole;
}

void TraceReader::end_scan(std::string_view value) {
    const Scanning what = scanning_;
    scanning_ = Scanning::nothing;
    try {
        switch (what) {
            case Scanning::key:
                key_ = JsonCursor(value).string(scratch_);
                place_ = Place::want_colon;
                return;
            case Scanning::kept:
                (key_ == "deviceProperties"  ? device_properties
                 : key_ == "distributedInfo" ? distributed_info
                                             : base_time) = value;
                [[fallthrough]];
            case Scanning::skipped: place_ = Place::want_comma; return;
            case Scanning::event:
                read_event(value);
                ++events;
                place_ = Place::want_event_comma;
                return;
            case Scanning::nothing: return;
        }
    } catch (const std::invalid_argument& error) {
        if (what != Scanning::event) throw;
        fail("event " + std::to_string(events) + " " + error.what());
    }
}

/// Reads an event that lies whole at the beginning of the text, and says how long it is; 0 when it
/// does not, or is wrong: whoever looks for its end first will say which.
std::size_t TraceReader::read_event_in_place(std::string_view text) {
    std::size_t used = 0;
    try {
        used = read_event(text);
    } catch (const std::invalid_argument&) {
        return 0;
    }
    ++events;
    place_ = Place::want_event_comma;
    return used;
}

std::size_t TraceReader::read_event(std::string_view text) {
    JsonCursor cursor(text);
    std::string_view phase, start, duration, pid = "\"\"", tid = "\"\"";
    std::int64_t correlation = -1, stream = -1, device = -1, bytes = 0;
    std::string_view dims, types, values;
    bool are_arguments_odd = false;
    extra_.clear();
    name_.clear();
    category_.clear();
    std::string text_of_phase, inner;

    const auto read_arguments = [&] {
        if (cursor.peek() != '{') {
            cursor.raw_value();
            are_arguments_odd = true;
            return;
        }
        cursor.object(inner, [&](std::string_view key) {
            if (key == "correlation") correlation = to_integer(cursor.raw_value());
            else if (key == "stream") stream = to_integer(cursor.raw_value());
            else if (key == "device") device = to_integer(cursor.raw_value());
            else if (key == "bytes") bytes = std::max<std::int64_t>(0, to_integer(cursor.raw_value()));
            else if (key == "Input Dims" || key == "Input dims") dims = cursor.raw_value();
            else if (key == "Input type") types = cursor.raw_value();
            else if (key == "Concrete Inputs") values = cursor.raw_value();
            else if (is_extra(key)) {
                extra_.append(extra_.empty() ? "{\"" : ",\"").append(key).append("\":");
                extra_.append(cursor.raw_value());
            } else cursor.raw_value();
        });
    };
    const auto read_text = [&](std::string& into) {
        if (cursor.peek() == '"') {
            into = cursor.string(inner);
            return;
        }
        into = cursor.raw_value();
        if (into == "null") into.clear();
    };
    cursor.object(scratch_, [&](std::string_view key) {
        if (key == "ph") {
            read_text(text_of_phase);
            phase = text_of_phase;
        } else if (key == "name") read_text(name_);
        else if (key == "cat") read_text(category_);
        else if (key == "ts") start = cursor.raw_value();
        else if (key == "dur") duration = cursor.raw_value();
        else if (key == "pid") pid = cursor.raw_value();
        else if (key == "tid") tid = cursor.raw_value();
        else if (key == "args") read_arguments();
        else cursor.raw_value();
    });

    if (phase.empty()) fail("has no 'ph'");
    const std::size_t used = cursor.position();
    if (phase == "B" || phase == "E") ++begin_end;
    if (phase != "X") return used;
    const auto shown = [&]() -> std::string {
        return category_.empty() && name_.empty() ? "" : " (" + category_ + " '" + name_.substr(0, 60) + "')";
    };
    if (start.empty() || start == "null") fail("has no 'ts'" + shown());
    if (duration.empty() || duration == "null") {
        ++without_end;
        return used;
    }
    const auto start_ns = microseconds_to_ns(start), duration_ns = microseconds_to_ns(duration);
    if (!start_ns || !duration_ns || *duration_ns < 0)
        fail("has an impossible time: ts " + std::string(start.substr(0, 40)) + ", dur " +
             std::string(duration.substr(0, 40)) + shown());
    if (are_arguments_odd) ++odd_arguments;
    thread_.assign(pid);
    thread_.push_back('\t');
    thread_.append(tid);
    columns.category.push_back(categories.code(category_));
    columns.name.push_back(names.code(name_));
    columns.thread.push_back(threads.code(thread_));
    columns.start_ns.push_back(*start_ns);
    columns.duration_ns.push_back(*duration_ns);
    columns.correlation.push_back(correlation);
    columns.stream.push_back(stream);
    columns.device.push_back(device);
    columns.bytes.push_back(bytes);
    columns.shape.push_back(dims.empty() ? 0 : shape_code(dims, types, values));
    columns.extra.push_back(extra_.empty() ? 0 : extras.code(extra_.append("}")));
    return used;
}

std::int32_t TraceReader::shape_code(std::string_view dims, std::string_view types, std::string_view values) {
    scratch_.assign(dims).append("\t").append(types).append("\t").append(values);
    return shapes.code(scratch_);
}

void TraceReader::finish() {
    if (scanning_ != Scanning::nothing || (place_ != Place::done && place_ != Place::before))
        fail("the JSON ends early");
    if (place_ == Place::before) fail("holds nothing");
    if (!saw_events_) fail("has no 'traceEvents': not a profiler trace");
}

}  // namespace gnomon
