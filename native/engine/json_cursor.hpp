// A cursor over one JSON value that lies whole in memory. Throws std::invalid_argument.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gnomon {

class JsonCursor {
public:
    explicit JsonCursor(std::string_view text) : text_(text) {}

    [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
    [[nodiscard]] std::size_t position() const { return at_; }

    char peek() {
        skip_space();
        if (at_end()) fail("ends early");
        return text_[at_];
    }
    bool accept(char c) {
        if (peek() != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) fail("is malformed");
    }

    /// The text between the quotes, escapes resolved into `scratch` where there are any.
    std::string_view string(std::string& scratch) {
        expect('"');
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\') ++at_;
        if (at_end()) fail("has a string without end");
        if (text_[at_] == '"') return text_.substr(begin, at_++ - begin);
        scratch.assign(text_.substr(begin, at_ - begin));
        unescape(scratch);
        return scratch;
    }

    /// The characters of a number or literal.
    std::string_view scalar() {
        skip_space();
        const std::size_t begin = at_;
        while (at_ < text_.size() && text_[at_] != ',' && text_[at_] != '}' && text_[at_] != ']' &&
               !is_space(text_[at_]))
            ++at_;
        if (at_ == begin) fail("is malformed");
        const auto found = text_.substr(begin, at_ - begin);
        for (const char c : found)
            if (!is_scalar_character(c)) fail("is malformed");
        return found;
    }

    /// Any value, raw.
    std::string_view raw_value() {
        const char first = peek();
        const std::size_t begin = at_;
        skip(first);
        return text_.substr(begin, at_ - begin);
    }

    /// Calls `each(key)` for every member of an object; `each` must consume the value.
    template <typename Each>
    void object(std::string& scratch, Each&& each) {
        expect('{');
        if (accept('}')) return;
        do {
            const auto key = string(scratch);
            expect(':');
            each(key);
        } while (accept(','));
        expect('}');
    }

    static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

    [[noreturn]] void fail(const char* what) const {
        throw std::invalid_argument(std::string(what) + " at byte " + std::to_string(at_) + " of it");
    }

private:
    static bool is_scalar_character(char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
               c == '.';
    }
    void skip_space() {
        while (at_ < text_.size() && is_space(text_[at_])) ++at_;
    }
    void skip(char first) {
        if (first == '"') return skip_string();
        if (first != '{' && first != '[') {
            scalar();
            return;
        }
        // Nesting by hand: a stack of brackets cannot overflow ours.
        std::string open;
        do {
            const char c = peek();
            if (c == '"') {
                skip_string();
            } else if (c == '{' || c == '[') {
                open.push_back(c == '{' ? '}' : ']');
                ++at_;
            } else if (c == '}' || c == ']') {
                if (open.back() != c) fail("is malformed");
                open.pop_back();
                ++at_;
            } else if (c == ',' || c == ':') {
                ++at_;
            } else {
                scalar_inside();
            }
        } while (!open.empty());
    }
    void scalar_inside() {
        const std::size_t begin = at_;
        while (at_ < text_.size() && is_scalar_character(text_[at_])) ++at_;
        if (at_ == begin) fail("is malformed");
    }
    void skip_string() {
        ++at_;
        while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
        if (at_end()) fail("has a string without end");
        ++at_;
    }
    void unescape(std::string& out);
    std::uint32_t hex4();

    std::string_view text_;
    std::size_t at_ = 0;
};

/// Microseconds in decimal notation as whole nanoseconds, towards zero; nothing for what is no
/// number or lies further away than a century (2^62 ns).
std::optional<std::int64_t> microseconds_to_ns(std::string_view text);

/// A whole number, also when written in quotes or as 1.0; -1 for anything else.
std::int64_t to_integer(std::string_view raw);

}  // namespace gnomon
