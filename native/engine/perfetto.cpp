#include "engine/perfetto.hpp"

#include <bit>
#include <stdexcept>

#include "engine/index.hpp"

namespace gnomon {
namespace {

constexpr std::size_t flush_at = std::size_t{1} << 20;
constexpr std::uint32_t sequence = 1;
constexpr std::uint64_t critical_name = 1;  // interned debug annotation name

/// Appends protobuf fields to a string.
class Message {
public:
    void varint(std::uint64_t v) {
        while (v >= 0x80) {
            bytes_.push_back(static_cast<char>(v | 0x80));
            v >>= 7;
        }
        bytes_.push_back(static_cast<char>(v));
    }
    void number(std::uint32_t field, std::uint64_t v) {
        varint(field << 3U);
        varint(v);
    }
    void fixed64(std::uint32_t field, std::uint64_t v) {
        varint((field << 3U) | 1U);
        for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(v >> (8 * i)));
    }
    void text(std::uint32_t field, std::string_view v) {
        varint((field << 3U) | 2U);
        varint(v.size());
        bytes_.append(v);
    }
    void message(std::uint32_t field, const Message& m) { text(field, m.bytes_); }
    [[nodiscard]] std::string_view view() const { return bytes_; }
    void clear() { bytes_.clear(); }

private:
    std::string bytes_;
};

namespace packet {
constexpr std::uint32_t timestamp = 8, sequence_id = 10, track_event = 11, interned_data = 12, sequence_flags = 13,
                        track_descriptor = 60;
}
namespace descriptor {
constexpr std::uint32_t uuid = 1, name = 2, process = 3, thread = 4, parent = 5, counter = 8;
}
namespace event {
constexpr std::uint32_t category_iids = 3, debug_annotations = 4, type = 9, name_iid = 10, track = 11,
                        double_counter_value = 44, flow_ids = 47, terminating_flow_ids = 48;
constexpr std::uint64_t begin = 1, end = 2, counter = 4;
}  // namespace event

Message interned(std::uint64_t iid, std::string_view name) {
    Message m;
    m.number(1, iid);
    m.text(2, name);
    return m;
}

/// Flow numbers by task, CSR.
struct FlowIndex {
    std::vector<std::int32_t> offset, flow;

    FlowIndex(std::span<const std::int32_t> task, std::size_t tasks) : offset(tasks + 1, 0), flow(task.size()) {
        for (const auto t : task) ++offset[index(t) + 1];
        for (std::size_t i = 1; i < offset.size(); ++i) offset[i] += offset[i - 1];
        auto fill = offset;
        for (std::size_t f = 0; f < task.size(); ++f)
            flow[index(fill[index(task[f])]++)] = static_cast<std::int32_t>(f);
    }
    [[nodiscard]] std::span<const std::int32_t> of(std::size_t task) const {
        return std::span(flow).subspan(index(offset[task]), index(offset[task + 1] - offset[task]));
    }
};

}  // namespace

PerfettoWriter::PerfettoWriter(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr) throw std::runtime_error("cannot write " + path);
}

PerfettoWriter::~PerfettoWriter() {
    if (file_ != nullptr) std::fclose(file_);
}

void PerfettoWriter::write_packet(std::string_view body) {
    if (file_ == nullptr) throw std::runtime_error("the trace is closed");
    Message frame;
    frame.text(1, body);
    buffer_.append(frame.view());
    if (buffer_.size() >= flush_at) flush();
}

void PerfettoWriter::flush() {
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) failed_ = true;
    buffer_.clear();
}

void PerfettoWriter::close() {
    if (file_ == nullptr) return;
    flush();
    if (std::fclose(file_) != 0) failed_ = true;
    file_ = nullptr;
    if (failed_) throw std::runtime_error("the trace could not be written in full; is the disk full?");
}

std::uint64_t PerfettoWriter::add_track(std::uint64_t parent, std::string_view name, std::uint32_t kind,
                                        std::string_view about) {
    const auto uuid = ++tracks_;
    Message track, body;
    track.number(descriptor::uuid, uuid);
    if (parent != 0) track.number(descriptor::parent, parent);
    if (!name.empty()) track.text(descriptor::name, name);
    track.text(kind, about);
    body.number(packet::sequence_id, sequence);
    body.message(packet::track_descriptor, track);
    write_packet(body.view());
    return uuid;
}

std::uint64_t PerfettoWriter::add_process(std::string_view name) {
    const auto pid = ++processes_;
    Message process;
    process.number(1, static_cast<std::uint64_t>(pid));
    process.text(6, name);
    const auto uuid = add_track(0, {}, descriptor::process, process.view());
    pid_of_.resize(uuid + 1, 0);
    pid_of_[uuid] = pid;
    return uuid;
}

std::uint64_t PerfettoWriter::add_lane(std::uint64_t process, std::string_view name) {
    Message thread;
    thread.number(1, static_cast<std::uint64_t>(pid_of_.at(process)));
    thread.number(2, tracks_ + 1001);  // clear of the pids: a thread with tid == pid would be "main"
    thread.text(5, name);
    return add_track(process, {}, descriptor::thread, thread.view());
}

std::uint64_t PerfettoWriter::add_counter(std::uint64_t process, std::string_view name, std::string_view unit) {
    Message counter;
    counter.text(6, unit);
    return add_track(process, name, descriptor::counter, counter.view());
}

void PerfettoWriter::write_slices(const Slices& slices, std::span<const std::uint64_t> lane_tracks,
                                  const std::vector<std::string>& names, const std::vector<std::string>& kinds) {
    Message data;
    for (std::size_t i = 0; i < kinds.size(); ++i) data.message(1, interned(kinds_ + i + 1, kinds[i]));
    for (std::size_t i = 0; i < names.size(); ++i) data.message(2, interned(names_ + i + 1, names[i]));
    if (!began_) data.message(3, interned(critical_name, "critical path"));
    Message body;
    body.number(packet::sequence_id, sequence);
    body.number(packet::sequence_flags, began_ ? 2 : 1);
    body.message(packet::interned_data, data);
    write_packet(body.view());
    began_ = true;

    const FlowIndex outgoing(slices.flow_from, slices.lane.size());
    const FlowIndex incoming(slices.flow_to, slices.lane.size());
    Message track_event, note;
    note.number(1, critical_name);
    note.number(2, 1);
    for (std::size_t i = 0; i < slices.lane.size(); ++i) {
        const auto track = lane_tracks[index(slices.lane[i])];
        track_event.clear();
        track_event.number(event::type, event::begin);
        track_event.number(event::track, track);
        track_event.number(event::name_iid, names_ + static_cast<std::uint64_t>(slices.name[i]) + 1);
        track_event.number(event::category_iids, kinds_ + slices.kind[i] + 1U);
        if (!slices.critical.empty() && slices.critical[i] != 0) track_event.message(event::debug_annotations, note);
        for (const auto f : outgoing.of(i))
            track_event.fixed64(event::flow_ids, flows_ + static_cast<std::uint64_t>(f) + 1);
        for (const auto f : incoming.of(i))
            track_event.fixed64(event::terminating_flow_ids, flows_ + static_cast<std::uint64_t>(f) + 1);
        body.clear();
        body.number(packet::timestamp, static_cast<std::uint64_t>(slices.start[i]));
        body.number(packet::sequence_id, sequence);
        body.number(packet::sequence_flags, 2);
        body.message(packet::track_event, track_event);
        write_packet(body.view());

        track_event.clear();
        track_event.number(event::type, event::end);
        track_event.number(event::track, track);
        body.clear();
        body.number(packet::timestamp, static_cast<std::uint64_t>(slices.end[i]));
        body.number(packet::sequence_id, sequence);
        body.number(packet::sequence_flags, 2);
        body.message(packet::track_event, track_event);
        write_packet(body.view());
    }
    names_ += names.size();
    kinds_ += kinds.size();
    flows_ += slices.flow_from.size();
}

void PerfettoWriter::write_counter(std::uint64_t track, std::span<const std::int64_t> time,
                                   std::span<const double> value) {
    Message track_event, body;
    for (std::size_t i = 0; i < time.size(); ++i) {
        track_event.clear();
        track_event.number(event::type, event::counter);
        track_event.number(event::track, track);
        track_event.fixed64(event::double_counter_value, std::bit_cast<std::uint64_t>(value[i]));
        body.clear();
        body.number(packet::timestamp, static_cast<std::uint64_t>(time[i]));
        body.number(packet::sequence_id, sequence);
        body.message(packet::track_event, track_event);
        write_packet(body.view());
    }
}

}  // namespace gnomon
