// Writes Perfetto's protobuf trace format (.pftrace): the few message types that slices, counters
// and flow arrows need, encoded by hand. Field numbers are those of perfetto's public
// trace_packet.proto, track_event.proto and track_descriptor.proto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gnomon {

struct Slices {
    std::span<const std::int32_t> lane;  // index into lane_tracks
    std::span<const std::int64_t> start;
    std::span<const std::int64_t> end;
    std::span<const std::int32_t> name;       // index into names
    std::span<const std::uint8_t> kind;       // index into kinds
    std::span<const std::uint8_t> critical;   // may be empty
    std::span<const std::int32_t> flow_from;  // task index pairs, may be empty
    std::span<const std::int32_t> flow_to;
};

class PerfettoWriter {
public:
    explicit PerfettoWriter(const std::string& path);
    ~PerfettoWriter();
    PerfettoWriter(const PerfettoWriter&) = delete;
    PerfettoWriter& operator=(const PerfettoWriter&) = delete;

    std::uint64_t add_process(std::string_view name);
    std::uint64_t add_lane(std::uint64_t process, std::string_view name);
    std::uint64_t add_counter(std::uint64_t process, std::string_view name, std::string_view unit);

    void write_slices(const Slices& slices, std::span<const std::uint64_t> lane_tracks,
                      const std::vector<std::string>& names, const std::vector<std::string>& kinds);
    void write_counter(std::uint64_t track, std::span<const std::int64_t> time, std::span<const double> value);
    /// Flushes and closes; throws std::runtime_error when the disk refused anything.
    void close();

private:
    std::uint64_t add_track(std::uint64_t parent, std::string_view name, std::uint32_t kind, std::string_view about);
    void write_packet(std::string_view body);
    void flush();

    std::FILE* file_;
    std::string buffer_;
    bool failed_ = false;
    std::uint64_t tracks_ = 0;
    std::uint64_t names_ = 0, kinds_ = 0, flows_ = 0;
    std::int32_t processes_ = 0;
    std::vector<std::int32_t> pid_of_;  // by process track
    bool began_ = false;
};

}  // namespace gnomon
