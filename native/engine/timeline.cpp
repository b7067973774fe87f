#include "engine/timeline.hpp"

#include <algorithm>
#include <limits>

#include "engine/index.hpp"

namespace gnomon {
namespace {

struct ClassSpans {
    std::vector<std::int64_t> starts, ends;
    std::size_t started = 0, ended = 0;

    // Starts and ends are sorted apart: how many are open at an instant needs no pairing.
    void prepare() {
        std::sort(starts.begin(), starts.end());
        std::sort(ends.begin(), ends.end());
    }
    [[nodiscard]] std::int64_t next_change() const {
        std::int64_t next = std::numeric_limits<std::int64_t>::max();
        if (started < starts.size()) next = starts[started];
        if (ended < ends.size()) next = std::min(next, ends[ended]);
        return next;
    }
    void advance(std::int64_t to) {
        while (started < starts.size() && starts[started] <= to) ++started;
        while (ended < ends.size() && ends[ended] <= to) ++ended;
    }
    [[nodiscard]] bool is_open() const { return started > ended; }
};

void sweep(std::vector<ClassSpans>& spans, std::int64_t* time_in_set) {
    constexpr auto never = std::numeric_limits<std::int64_t>::max();
    for (auto& s : spans) s.prepare();
    std::size_t open = 0;
    std::int64_t now = never;
    for (;;) {
        std::int64_t next = never;
        for (const auto& s : spans) next = std::min(next, s.next_change());
        if (next == never) return;
        if (now != never) time_in_set[open] += next - now;
        now = next;
        open = 0;
        for (std::size_t c = 0; c < spans.size(); ++c) {
            spans[c].advance(now);
            if (spans[c].is_open()) open |= std::size_t{1} << c;
        }
    }
}

}  // namespace

std::vector<std::int64_t> class_overlap(std::span<const std::int64_t> start, std::span<const std::int64_t> end,
                                        std::span<const std::uint8_t> span_class, std::span<const std::int32_t> device,
                                        std::int32_t devices, std::int32_t classes) {
    const auto sets = std::size_t{1} << classes;
    std::vector<std::int64_t> result(index(devices) * sets, 0);
    std::vector<std::vector<ClassSpans>> spans(index(devices), std::vector<ClassSpans>(index(classes)));
    for (std::size_t i = 0; i < start.size(); ++i) {
        if (span_class[i] == no_class || end[i] <= start[i]) continue;
        const auto d = device.empty() ? 0 : index(device[i]);
        spans[d][span_class[i]].starts.push_back(start[i]);
        spans[d][span_class[i]].ends.push_back(end[i]);
    }
    for (std::size_t d = 0; d < spans.size(); ++d) sweep(spans[d], &result[d * sets]);
    return result;
}

std::vector<std::int32_t> follow_causes(std::span<const std::int32_t> cause, std::int32_t from) {
    std::vector<std::int32_t> path;
    // Causes of a replay cannot form a ring; the bound keeps made-up ones from looping forever.
    for (std::int32_t task = from; task >= 0 && path.size() <= cause.size(); task = cause[index(task)])
        path.push_back(task);
    return path;
}

}  // namespace gnomon
