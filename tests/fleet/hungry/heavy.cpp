// A table made by the compiler, which needs some 290 MB for it.
#include <cstddef>

template <typename T, std::size_t N> struct Table { T values[N]; };

constexpr std::size_t LENGTH = 1200000;

constexpr Table<long, LENGTH> multiples(long of) {
  Table<long, LENGTH> table{};
  for (std::size_t i = 0; i < LENGTH; i++) table.values[i] = of * i;
  return table;
}

namespace {
constexpr auto table = multiples(NUMBER);
}

template <int> long look(std::size_t);
template <> long look<NUMBER>(std::size_t i) { return table.values[i]; }
