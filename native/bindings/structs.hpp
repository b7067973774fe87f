// Structs of the engine as classes of Python: built from keywords, read by attributes.
#pragma once

#include "bindings/arrays.hpp"

namespace gnomon::bindings {

/// A struct of the engine, with the arrays that its spans look into.
template <typename Struct>
struct Passed : Struct {
    std::vector<nb::ndarray<>> owners;
};

/// A field that Python may leave out (`optional`) or has to give.
template <bool is_optional, typename Struct, typename Member>
struct Field {
    const char* name;
    Member Struct::* member;

    using Value = Member;
    void set(Passed<Struct>& to, Value value) const { to.*member = std::move(value); }
    auto argument() const {
        if constexpr (is_optional) return nb::arg(name) = Struct{}.*member;
        else return nb::arg(name);
    }
};

template <bool is_optional, typename Struct, typename T>
struct Field<is_optional, Struct, std::span<const T>> {
    const char* name;
    std::span<const T> Struct::* member;

    using Value = In<T>;
    void set(Passed<Struct>& to, const Value& value) const {
        to.*member = view(value);
        to.owners.emplace_back(value);
    }
    auto argument() const {
        if constexpr (is_optional) return nb::arg(name).noconvert().none() = nb::none();
        else return nb::arg(name).noconvert();
    }
};

template <typename Struct, typename Member>
Field<false, Struct, Member> required(const char* name, Member Struct::* member) {
    return {name, member};
}

/// Left out, a column is empty and a number what the engine's struct says.
template <typename Struct, typename Member>
Field<true, Struct, Member> optional(const char* name, Member Struct::* member) {
    return {name, member};
}

/// A class whose constructor takes the fields by keyword, and is refused by `check`.
template <typename Struct, typename... Fields>
nb::class_<Passed<Struct>> bind_input(nb::module_& m, const char* name, const char* doc, void (*check)(const Struct&),
                                      Fields... fields) {
    return nb::class_<Passed<Struct>>(m, name, doc)
        .def(
            "__init__",
            [=](Passed<Struct>* self, typename Fields::Value... values) {
                Passed<Struct> made;
                (fields.set(made, std::move(values)), ...);
                check(made);
                new (self) Passed<Struct>(std::move(made));
            },
            nb::kw_only(), fields.argument()...);
}

/// A column of a result as an attribute: NumPy looks into the result, which then lives as long.
template <typename Result, typename T>
struct Column {
    const char* name;
    std::vector<T> Result::* member;

    void add_to(nb::class_<Result>& bound) const {
        const auto get = [member = member](Result& result) {
            return Numbers<T>((result.*member).data(), {(result.*member).size()});
        };
        bound.def_prop_ro(name, get, nb::rv_policy::reference_internal);
    }
};

/// For large results a method: the column is moved out, so that the rest can be freed without it.
template <typename Result, typename T>
struct Taken {
    const char* name;
    std::vector<T> Result::* member;

    void add_to(nb::class_<Result>& bound) const {
        bound.def(name, [member = member](Result& result) { return to_numpy(std::move(result.*member)); });
    }
};

template <typename Result, typename T>
struct Value {
    const char* name;
    T Result::* member;

    void add_to(nb::class_<Result>& bound) const { bound.def_ro(name, member); }
};

template <typename Result, typename... Fields>
void bind_result(nb::module_& m, const char* name, const char* doc, Fields... fields) {
    nb::class_<Result> bound(m, name, doc);
    (fields.add_to(bound), ...);
}

}  // namespace gnomon::bindings
