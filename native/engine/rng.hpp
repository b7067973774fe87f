// Random streams, shared by every simulator.
//
// `Rng(seed, stream)` gives streams that do not overlap in practice: a simulator takes one stream
// a noun (arrivals, sizes, failures), so that changing how often one noun draws does not disturb
// the others. The generator is xoshiro256++ (Blackman and Vigna, 2019), its state filled by
// splitmix64 from the pair (seed, stream).
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace gnomon {

class Rng {
public:
    using result_type = std::uint64_t;

    explicit Rng(std::uint64_t seed, std::uint64_t stream = 0) {
        std::uint64_t x = seed;
        const std::uint64_t mixed_seed = splitmix(x);
        x = mixed_seed ^ (stream * 0xD1B54A32D192ED03ULL + 0x8CB92BA72F3D8DD7ULL);
        for (auto& word : state_) word = splitmix(x);
    }

    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return ~std::uint64_t{0}; }

    result_type operator()() {
        const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
        const std::uint64_t t = state_[1] << 17;
        state_[2] ^= state_[0];
        state_[3] ^= state_[1];
        state_[1] ^= state_[2];
        state_[0] ^= state_[3];
        state_[2] ^= t;
        state_[3] = std::rotl(state_[3], 45);
        return result;
    }

    /// Uniform in [0, 1), 53 bits.
    double uniform() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

    /// Uniform integer in [0, n), without modulo bias.
    std::uint64_t below(std::uint64_t n) {
        const std::uint64_t limit = max() - max() % n;
        std::uint64_t draw = (*this)();
        while (draw >= limit) draw = (*this)();
        return draw % n;
    }

    double exponential(double mean) { return -mean * std::log1p(-uniform()); }

    /// Marsaglia's polar method; the spare is not kept, so that every call costs whole draws and
    /// a stream's position depends only on how many variates were asked for.
    double normal() {
        for (;;) {
            const double u = 2.0 * uniform() - 1.0;
            const double v = 2.0 * uniform() - 1.0;
            const double s = u * u + v * v;
            if (s > 0.0 && s < 1.0) return u * std::sqrt(-2.0 * std::log(s) / s);
        }
    }

private:
    static std::uint64_t splitmix(std::uint64_t& x) {
        x += 0x9E3779B97F4A7C15ULL;
        std::uint64_t z = x;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
        return z ^ (z >> 31);
    }

    std::array<std::uint64_t, 4> state_{};
};

}  // namespace gnomon
