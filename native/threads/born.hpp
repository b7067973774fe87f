#pragma once

namespace gnomon::threads {

/// Threads do not survive a fork: what was made before one is of no use after it.
class Born {
public:
    Born();
    [[nodiscard]] bool is_forked() const;

private:
    unsigned forks_;
};

}  // namespace gnomon::threads
