#include "engine/json_cursor.hpp"

namespace gnomon {
namespace {

constexpr std::uint64_t century = std::uint64_t{1} << 62;

struct Decimal {
    bool negative = false;
    std::uint64_t digits = 0;   // the first nineteen significant ones: more do not fit
    std::int64_t exponent = 0;  // value = digits * 10^exponent
    bool is_number = false;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

Decimal parse_decimal(std::string_view text) {
    Decimal out;
    std::size_t i = 0;
    if (i < text.size() && text[i] == '-') {
        out.negative = true;
        ++i;
    }
    bool any = false, point = false;
    int kept = 0;
    for (; i < text.size(); ++i) {
        if (text[i] == '.') {
            if (point) return {};
            point = true;
            continue;
        }
        if (!is_digit(text[i])) break;
        any = true;
        if (kept < 19) {
            out.digits = out.digits * 10 + static_cast<std::uint64_t>(text[i] - '0');
            if (out.digits != 0) ++kept;
            if (point) --out.exponent;
        } else if (!point) {
            ++out.exponent;
        }
    }
    if (!any) return {};
    if (i < text.size()) {
        if (text[i] != 'e' && text[i] != 'E') return {};
        ++i;
        bool down = false;
        if (i < text.size() && (text[i] == '-' || text[i] == '+')) down = text[i++] == '-';
        if (i >= text.size()) return {};
        std::int64_t power = 0;
        for (; i < text.size(); ++i) {
            if (!is_digit(text[i])) return {};
            if (power < 1'000'000) power = power * 10 + (text[i] - '0');
        }
        out.exponent += down ? -power : power;
    }
    out.is_number = true;
    return out;
}

/// digits * 10^exponent, cut towards zero; nothing when a century is passed.
std::optional<std::int64_t> scale(const Decimal& number, std::int64_t shift) {
    std::uint64_t value = number.digits;
    std::int64_t power = number.exponent + shift;
    for (; power > 0 && value != 0; --power) {
        if (value >= century / 10) return std::nullopt;
        value *= 10;
    }
    for (; power < 0 && value != 0; ++power) value /= 10;
    if (value >= century) return std::nullopt;
    const auto whole = static_cast<std::int64_t>(value);
    return number.negative ? -whole : whole;
}

/// Some tools write numbers as text.
std::string_view without_quotes(std::string_view raw) {
    return raw.size() >= 2 && raw.front() == '"' ? raw.substr(1, raw.size() - 2) : raw;
}

void append_utf8(std::string& out, std::uint32_t code) {
    const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xC0 | (code >> 6));
        put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
        put(0xE0 | (code >> 12));
        put(0x80 | ((code >> 6) & 0x3F));
        put(0x80 | (code & 0x3F));
    } else {
        put(0xF0 | (code >> 18));
        put(0x80 | ((code >> 12) & 0x3F));
        put(0x80 | ((code >> 6) & 0x3F));
        put(0x80 | (code & 0x3F));
    }
}

}  // namespace

std::uint32_t JsonCursor::hex4() {
    if (at_ + 4 > text_.size()) fail("has a broken escape");
    std::uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        const char c = text_[at_++];
        std::uint32_t digit = 0;
        if (is_digit(c)) digit = static_cast<std::uint32_t>(c - '0');
        else if (c >= 'a' && c <= 'f') digit = static_cast<std::uint32_t>(c - 'a' + 10);
        else if (c >= 'A' && c <= 'F') digit = static_cast<std::uint32_t>(c - 'A' + 10);
        else fail("has a broken escape");
        value = value * 16 + digit;
    }
    return value;
}

void JsonCursor::unescape(std::string& out) {
    while (at_ < text_.size() && text_[at_] != '"') {
        if (text_[at_] != '\\') {
            out.push_back(text_[at_++]);
            continue;
        }
        if (++at_ >= text_.size()) break;
        const char c = text_[at_++];
        switch (c) {
            case '"':
            case '\\':
            case '/': out.push_back(c); break;
            case 'b': out.push_back('\b'); break;
            case 'f': out.push_back('\f'); break;
            case 'n': out.push_back('\n'); break;
            case 'r': out.push_back('\r'); break;
            case 't': out.push_back('\t'); break;
            case 'u': {
                std::uint32_t code = hex4();
                if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
                    const std::size_t before = at_;
                    at_ += 2;
                    const std::uint32_t low = hex4();
                    if (low >= 0xDC00 && low <= 0xDFFF) code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    else at_ = before;  // not its other half: it speaks for itself
                }
                // Half a pair alone is no character; a name is not worth refusing a trace for.
                append_utf8(out, code >= 0xD800 && code <= 0xDFFF ? 0xFFFD : code);
                break;
            }
            default: fail("has a broken escape");
        }
    }
    if (at_end()) fail("has a string without end");
    ++at_;
}

std::optional<std::int64_t> microseconds_to_ns(std::string_view text) {
    const Decimal number = parse_decimal(without_quotes(text));
    if (!number.is_number) return std::nullopt;
    return scale(number, 3);
}

std::int64_t to_integer(std::string_view raw) {
    const Decimal number = parse_decimal(without_quotes(raw));
    if (!number.is_number) return -1;
    return scale(number, 0).value_or(-1);
}

}  // namespace gnomon
