// Whether fixed options keep the rows of one class, and with which promises: exact, and remembered.
#pragma once

#include <map>

#include "engine/choice/choice.hpp"

namespace gnomon {

class ClassCheck {
public:
    struct Found {
        bool is_kept = false;
        std::vector<std::int32_t> promise;  // of each part of the class
    };

    explicit ClassCheck(const ChoiceProblem& problem);

    [[nodiscard]] std::size_t classes() const { return parts_.size(); }
    [[nodiscard]] const std::vector<std::size_t>& parts(std::size_t of_class) const { return parts_[of_class]; }
    [[nodiscard]] std::size_t service(std::size_t part) const { return service_[part]; }
    /// Where the promises of an option begin in `first_promise`, part by part.
    [[nodiscard]] std::size_t first_slot(std::size_t option) const { return first_slot_[option]; }
    [[nodiscard]] std::size_t slot(std::size_t option, std::size_t part) const {
        return first_slot_[option] + part - static_cast<std::size_t>(problem_.first_part[service_[part]]);
    }
    /// `pick`: an option of each service of the class.
    const Found& find(std::size_t of_class, const std::vector<std::int32_t>& pick);
    /// A class had more promises to compare than we are ready to: answers may be wrong.
    [[nodiscard]] bool gave_up() const { return gave_up_; }

private:
    using Uses = std::vector<double>;  // of each row of the class

    struct State {
        Uses used;
        std::size_t from;  // the state before it
        std::int32_t promise;
    };

    [[nodiscard]] Uses uses(std::size_t of_class, std::size_t part, std::size_t promise) const;
    [[nodiscard]] std::vector<State> extend(const std::vector<State>& before, std::size_t first,
                                            const std::vector<Uses>& choices, const Uses& later) const;
    Found solve(std::size_t of_class, const std::vector<std::int32_t>& pick);

    const ChoiceProblem& problem_;
    std::vector<std::vector<std::size_t>> parts_;  // of each class
    std::vector<std::size_t> rows_;                // of each class: how many
    std::vector<std::size_t> row_place_;           // of each row: inside its class
    std::vector<std::size_t> service_;             // of each part
    std::vector<std::size_t> first_slot_;          // of each option
    std::map<std::vector<std::int32_t>, Found> known_;
    bool gave_up_ = false;
};

}  // namespace gnomon
