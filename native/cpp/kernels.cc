// The network on one image. This file is compiled once for each instruction set, with KERNELS naming the result.
//
// It calls no inline function of the standard library: the linker would keep one copy for all instruction
// sets, and a processor without AVX-512 could meet one that needs it.

#include "kernels.h"

namespace byol_explore {
namespace {

#if defined(__AVX512F__)
constexpr int kLanes = 16, kRegisters = 32;
#elif defined(__AVX2__)
constexpr int kLanes = 8, kRegisters = 16;
#elif defined(__aarch64__)
constexpr int kLanes = 4, kRegisters = 32;
#else
constexpr int kLanes = 4, kRegisters = 16;
#endif
constexpr int kSums = kRegisters * 3 / 4;  // registers that hold sums; the others hold factors

// Vectors of the compiler (GCC and Clang), at any address that is aligned for floats.
typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));
typedef std::int32_t Integers __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

#define INLINE inline __attribute__((always_inline))

INLINE Vector load(const float* at) { return *reinterpret_cast<const Vector*>(at); }
INLINE void store(float* at, Vector x) { *reinterpret_cast<Vector*>(at) = x; }
INLINE Vector splat(float x) { return x - Vector{}; }
INLINE Vector relu(Vector x) { return x < 0.0f ? Vector{} : x; }  // keeps a NaN
INLINE float* pixel(float* memory, const Image& image, int row, int column) {
  return memory + image.offset + (row + 1) * image.row() + static_cast<std::int64_t>(column + 1) * image.channels;
}

INLINE float sum_lanes(Vector x) {
  float sum = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) sum += x[lane];
  return sum;
}

// Convolution -----------------------------------------------------------------------------------------------------

// What becomes of the sums of a convolution, in this order. All images have the convolution's output shape.
struct Output {
  const float* bias = nullptr;      // added
  const Image* positive = nullptr;  // 0 where this image is not positive: the gradient of a ReLU
  const Image* sum = nullptr;       // added to this image
  const Image* out = nullptr;       // written to
  const Image* relu = nullptr;      // the positive part is written to
};

// Not inlined, because it would be copied into every template below.
template <int Vectors>
__attribute__((noinline)) void finish(const Output& to, int channels, float* memory, int row, int column,
                                      int channel, int pixels, const Vector* sums) {
  const auto at = [&](const Image* image) {
    return image ? pixel(memory, *image, row, column) + channel : nullptr;
  };
  const float *bias = to.bias ? to.bias + channel : nullptr, *positive = at(to.positive);
  float *sum = at(to.sum), *out = at(to.out), *rectified = at(to.relu);
  for (int p = 0; p < pixels; ++p)
    for (int v = 0; v < Vectors; ++v) {
      const int offset = p * channels + v * kLanes;
      Vector value = sums[p * Vectors + v];
      if (bias) value += load(bias + v * kLanes);
      if (positive) value = load(positive + offset) > 0.0f ? value : Vector{};
      if (sum) value += load(sum + offset);
      if (sum) store(sum + offset, value);
      if (out) store(out + offset, value);
      if (rectified) store(rectified + offset, relu(value));
    }
}

// Computes `Count` pixels of a row and `Vectors` vectors of output channels, beginning at `column` and `channel`.
template <int Inputs, int Vectors, int Count>
void convolve_pixels(const Image& from, const float* weight, int outputs, const Output& to, float* memory, int row,
                     int column, int channel) {
  Vector sums[Count][Vectors] = {};
  for (int tap = 0; tap < 3; ++tap) {
    const float* in = pixel(memory, from, row + tap - 1, column - 1);
    const float* factors = weight + static_cast<std::int64_t>(tap) * 3 * Inputs * outputs + channel;
    for (int i = 0; i < 3 * Inputs; ++i) {  // the channels of three adjacent pixels
      Vector factor[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) factor[v] = load(factors + i * outputs + v * kLanes);
#pragma GCC unroll 32
      for (int p = 0; p < Count; ++p) {
        const Vector value = splat(in[p * Inputs + i]);
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) sums[p][v] += value * factor[v];
      }
    }
  }
  Vector done[Count * Vectors];  // a copy, so that the sums themselves need no memory
#pragma GCC unroll 32
  for (int p = 0; p < Count; ++p)
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) done[p * Vectors + v] = sums[p][v];
  finish<Vectors>(to, outputs, memory, row, column, channel, Count, done);
}

// Finds the template for a number of pixels that is known only now.
template <int Inputs, int Vectors, int Count = kSums / Vectors>
INLINE void convolve_some(int count, const Image& from, const float* weight, int outputs, const Output& to,
                          float* memory, int row, int column, int channel) {
  if (count == Count) {
    convolve_pixels<Inputs, Vectors, Count>(from, weight, outputs, to, memory, row, column, channel);
  } else if constexpr (Count > 1) {
    convolve_some<Inputs, Vectors, Count - 1>(count, from, weight, outputs, to, memory, row, column, channel);
  }
}

template <int Inputs, int Vectors>
void convolve_all(const Image& from, const float* weight, int outputs, const Output& to, float* memory) {
  constexpr int kMost = kSums / Vectors;
  const int tiles = (from.width + kMost - 1) / kMost;
  for (int row = 0; row < from.height; ++row)
    for (int tile = 0; tile < tiles; ++tile) {  // of equal size, up to one pixel
      const int column = tile * from.width / tiles, end = (tile + 1) * from.width / tiles;
      for (int channel = 0; channel < outputs; channel += Vectors * kLanes)
        convolve_some<Inputs, Vectors>(end - column, from, weight, outputs, to, memory, row, column, channel);
    }
}

template <int Inputs>
void convolve_inputs(const Image& from, const float* weight, int outputs, const Output& to, float* memory) {
  if (outputs % (2 * kLanes) == 0)
    convolve_all<Inputs, 2>(from, weight, outputs, to, memory);
  else
    convolve_all<Inputs, 1>(from, weight, outputs, to, memory);
}

// Convolves an image with weights [3, 3, inputs, outputs].
void convolve(const Image& from, const float* weight, int outputs, const Output& to, float* memory) {
  switch (from.channels) {
    case 1: return convolve_inputs<1>(from, weight, outputs, to, memory);
    case 2: return convolve_inputs<2>(from, weight, outputs, to, memory);
    case 3: return convolve_inputs<3>(from, weight, outputs, to, memory);
    case 4: return convolve_inputs<4>(from, weight, outputs, to, memory);
    case 16: return convolve_inputs<16>(from, weight, outputs, to, memory);
    case 32: return convolve_inputs<32>(from, weight, outputs, to, memory);
  }
}

// Adds the products of `Inputs` input channels with `Vectors` vectors of the gradient to the weights of three taps in
// a row, summed over `rows` rows. `in` and `gradient` point to the first pixel of the first row.
template <int Inputs, int Vectors>
void add_products(const float* in, const Image& from, const float* gradient, const Image& to, int rows, float* weight) {
  const std::int64_t stride = static_cast<std::int64_t>(from.channels) * to.channels;  // from a tap to the next
  Vector sums[3][Inputs][Vectors];
#pragma GCC unroll 3
  for (int tap = 0; tap < 3; ++tap)
#pragma GCC unroll 8
    for (int i = 0; i < Inputs; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        sums[tap][i][v] = load(weight + tap * stride + i * to.channels + v * kLanes);
  for (int row = 0; row < rows; ++row) {
    const float* values = in + row * from.row();
    const float* factors = gradient + row * to.row() + to.channels;  // tap 0 of a pixel belongs to the output after it
    for (int column = 0; column < from.width; ++column) {
      if constexpr (kRegisters > 16) {
        Vector factor[3][Vectors];
#pragma GCC unroll 3
        for (int tap = 0; tap < 3; ++tap)
#pragma GCC unroll 2
          for (int v = 0; v < Vectors; ++v) factor[tap][v] = load(factors - tap * to.channels + v * kLanes);
#pragma GCC unroll 8
        for (int i = 0; i < Inputs; ++i) {
          const Vector value = splat(values[i]);
#pragma GCC unroll 3
          for (int tap = 0; tap < 3; ++tap)
#pragma GCC unroll 2
            for (int v = 0; v < Vectors; ++v) sums[tap][i][v] += value * factor[tap][v];
        }
      } else {  // too few registers for all factors
        Vector value[Inputs];
#pragma GCC unroll 8
        for (int i = 0; i < Inputs; ++i) value[i] = splat(values[i]);
#pragma GCC unroll 3
        for (int tap = 0; tap < 3; ++tap)
#pragma GCC unroll 2
          for (int v = 0; v < Vectors; ++v) {
            const Vector factor = load(factors - tap * to.channels + v * kLanes);
#pragma GCC unroll 8
            for (int i = 0; i < Inputs; ++i) sums[tap][i][v] += value[i] * factor;
          }
      }
      values += from.channels;
      factors += to.channels;
    }
  }
#pragma GCC unroll 3
  for (int tap = 0; tap < 3; ++tap)
#pragma GCC unroll 8
    for (int i = 0; i < Inputs; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        store(weight + tap * stride + i * to.channels + v * kLanes, sums[tap][i][v]);
}

constexpr int kRows = 4;  // rows of both images stay in the first cache while all weights visit them

template <int Inputs, int Vectors>
void add_all_products(const Image& from, const Image& to, float* weight, float* memory) {
  const std::int64_t taps = 3LL * from.channels * to.channels;
  for (int begin = 0; begin < from.height; begin += kRows) {
    const int rows = from.height - begin < kRows ? from.height - begin : kRows;
    for (int tap = 0; tap < 3; ++tap)
      for (int i = 0; i < from.channels; i += Inputs)
        for (int o = 0; o < to.channels; o += Vectors * kLanes)
          add_products<Inputs, Vectors>(pixel(memory, from, begin + tap - 1, 0) + i, from,
                                        pixel(memory, to, begin, 0) + o, to, rows,
                                        weight + tap * taps + static_cast<std::int64_t>(i) * to.channels + o);
  }
}

template <int Vectors>
void add_weight_gradient(const Image& from, const Image& to, float* weight, float* memory) {
  constexpr int kInputs = kSums / 3 / Vectors;
  switch (from.channels) {
    case 1: return add_all_products<1, Vectors>(from, to, weight, memory);
    case 2: return add_all_products<2, Vectors>(from, to, weight, memory);
    case 3: return add_all_products<kInputs >= 3 ? 3 : 1, Vectors>(from, to, weight, memory);
    case 4: return add_all_products<kInputs >= 4 ? 4 : 2, Vectors>(from, to, weight, memory);
    default: return add_all_products<kInputs, Vectors>(from, to, weight, memory);
  }
}

// Adds the gradient of a convolution's parameters, given its input and the gradient of its output.
void add_parameter_gradient(const Convolution& layer, const Image& from, const Image& to, float* parameters,
                            float* memory) {
  if (layer.outputs % (2 * kLanes) == 0)
    add_weight_gradient<2>(from, to, parameters + layer.weight, memory);
  else
    add_weight_gradient<1>(from, to, parameters + layer.weight, memory);
  for (int o = 0; o < to.channels; o += kLanes) {
    Vector sums[4] = {};  // several, because each addition waits for the one before it
    for (int row = 0; row < to.height; ++row) {
      const float* at = pixel(memory, to, row, 0) + o;
      int column = 0;
      for (; column + 4 <= to.width; column += 4)
        for (int i = 0; i < 4; ++i) sums[i] += load(at + (column + i) * to.channels);
      for (; column < to.width; ++column) sums[0] += load(at + column * to.channels);
    }
    store(parameters + layer.bias + o,
          load(parameters + layer.bias + o) + ((sums[0] + sums[1]) + (sums[2] + sums[3])));
  }
}

// Pooling: 3 x 3 windows with stride 2, padded so that half of the pixels are left, rounded up ----------------------

// A window along one axis: its three pixels, those outside replaced by their neighbours, and their places in it.
struct Window {
  int at[3], place[3];
};

INLINE Window window_of(int window, int size) {
  const int begin = 2 * window - size % 2;  // padded before an odd size; an even one is padded after it only
  Window made;
  for (int i = 0; i < 3; ++i) {
    made.at[i] = begin + i < 0 ? 0 : begin + i < size ? begin + i : size - 1;
    made.place[i] = made.at[i] - begin;
  }
  return made;
}

struct Best {
  Vector value;
  Integers place;

  // Keeps the first of equal values, and a NaN.
  INLINE void compare(Vector other, Integers other_place) {
    const Integers better = ~(other <= value) & (value == value);
    value = better ? other : value;
    place = better ? other_place : place;
  }
};

INLINE Integers* places(float* memory, const Unit& unit, int row, int column) {
  return reinterpret_cast<Integers*>(pixel(memory, unit.winner, row, column));
}

// Writes the largest pixel of each window to unit.x, its place to unit.winner, and the positive part to the input of
// the first block.
void pool(const Unit& unit, float* memory) {
  const int channels = unit.x.channels;
  for (int row = 0; row < unit.x.height; ++row) {
    const Window rows = window_of(row, unit.wide.height);
    for (int column = 0; column < unit.x.width; ++column) {
      const Window columns = window_of(column, unit.wide.width);
      for (int channel = 0; channel < channels; channel += kLanes) {
        Best best[3];  // of each row
        for (int r = 0; r < 3; ++r) {
          const float* line = pixel(memory, unit.wide, rows.at[r], 0) + channel;
          const int first = 3 * rows.place[r];
          best[r] = {load(line + columns.at[0] * channels), first + columns.place[0] - Integers{}};
          for (int c = 1; c < 3; ++c)
            best[r].compare(load(line + columns.at[c] * channels), first + columns.place[c] - Integers{});
        }
        for (int r = 1; r < 3; ++r) best[0].compare(best[r].value, best[r].place);
        store(pixel(memory, unit.x, row, column) + channel, best[0].value);
        store(pixel(memory, unit.inputs[0], row, column) + channel, relu(best[0].value));
        places(memory, unit, row, column)[channel / kLanes] = best[0].place;
      }
    }
  }
}

// The windows along one axis that have a pixel, one or two, and its places in them.
struct Windows {
  int count, window[2], place[2];
};

INLINE Windows windows_of(int at, int size) {
  const int padded = at + size % 2;
  if (padded % 2) return {1, {padded / 2, 0}, {1, 0}};
  return {2, {padded / 2, padded / 2 - 1}, {0, 2}};  // one of them may be outside, where the gradient is zero
}

// Turns the gradient of unit.x, in unit.gradient, into that of a row of pixels before pooling, in unit.wide. Each
// pixel is in one or in `Rows` rows of windows.
template <int Rows>
void unpool_row(const Unit& unit, float* memory, int row, const Windows& rows) {
  const int channels = unit.x.channels;
  const float* gradient[Rows];
  const float* winner[Rows];
  for (int i = 0; i < Rows; ++i) {
    gradient[i] = pixel(memory, unit.gradient, rows.window[i], 0);
    winner[i] = pixel(memory, unit.winner, rows.window[i], 0);
  }
  float* to = pixel(memory, unit.wide, row, 0);
  for (int column = 0; column < unit.wide.width; ++column) {
    const Windows columns = windows_of(column, unit.wide.width);
    for (int channel = 0; channel < channels; channel += kLanes, to += kLanes) {
      const auto given = [&](int i, int j) {
        const int offset = columns.window[j] * channels + channel;
        const Integers won = *reinterpret_cast<const Integers*>(winner[i] + offset);
        return won == 3 * rows.place[i] + columns.place[j] ? load(gradient[i] + offset) : Vector{};
      };
      Vector sum = given(0, 0);
      if constexpr (Rows == 2) sum += given(1, 0);
      if (columns.count == 2) {
        sum += given(0, 1);
        if constexpr (Rows == 2) sum += given(1, 1);
      }
      store(to, sum);
    }
  }
}

void unpool(const Unit& unit, float* memory) {
  for (int row = 0; row < unit.wide.height; ++row) {
    const Windows rows = windows_of(row, unit.wide.height);
    rows.count == 2 ? unpool_row<2>(unit, memory, row, rows) : unpool_row<1>(unit, memory, row, rows);
  }
}

// Group normalisation with one group --------------------------------------------------------------------------------

constexpr float kEpsilon = 1e-5f;

// Calls use(row, column, channel) for each vector of an image.
template <class Use>
INLINE void for_each_vector(const Image& image, const Use& use) {
  for (int row = 0; row < image.height; ++row)
    for (int column = 0; column < image.width; ++column)
      for (int channel = 0; channel < image.channels; channel += kLanes) use(row, column, channel);
}

// Returns the mean of value(row, column, channel) over an image, with a sum of its own for each row.
template <class Value>
INLINE float mean_of(const Image& image, const Value& value) {
  Vector total{};
  for (int row = 0; row < image.height; ++row) {
    Vector sum{};
    for (int column = 0; column < image.width; ++column)
      for (int channel = 0; channel < image.channels; channel += kLanes) sum += value(row, column, channel);
    total += sum;
  }
  return sum_lanes(total) / (static_cast<float>(image.height) * image.width * image.channels);
}

void compute_statistics(const Unit& unit, float* memory) {
  const auto x = [&](int r, int c, int channel) { return load(pixel(memory, unit.x, r, c) + channel); };
  const float mean = mean_of(unit.x, x);
  const float variance = mean_of(unit.x, [&](int r, int c, int channel) {
    const Vector centered = x(r, c, channel) - mean;
    return centered * centered;
  });
  memory[unit.statistics] = mean;
  memory[unit.statistics + 1] = 1.0f / __builtin_sqrtf(variance + kEpsilon);
}

// Returns a vector of the unit's output.
INLINE Vector normalized(const Network& network, const Unit& unit, const float* parameters, float* memory, int row,
                         int column, int channel) {
  const Vector x = load(pixel(memory, unit.x, row, column) + channel);
  if (!network.normalize) return x;
  const Vector scale = load(parameters + unit.scale + channel), bias = load(parameters + unit.bias + channel);
  return (x - memory[unit.statistics]) * memory[unit.statistics + 1] * scale + bias;
}

// Turns the gradient of the unit's output, in unit.gradient, into that of its input unit.x.
void normalize_backward(const Unit& unit, const float* parameters, float* memory, float* parameter_gradient) {
  const float mean = memory[unit.statistics], factor = memory[unit.statistics + 1];
  const auto x = [&](int r, int c, int channel) {
    return (load(pixel(memory, unit.x, r, c) + channel) - mean) * factor;
  };
  const auto gradient = [&](int r, int c, int channel) { return pixel(memory, unit.gradient, r, c) + channel; };
  for (int channel = 0; channel < unit.x.channels; channel += kLanes) {
    Vector to_scale{}, to_bias{};
    const Vector scale = load(parameters + unit.scale + channel);
    for (int r = 0; r < unit.x.height; ++r)
      for (int c = 0; c < unit.x.width; ++c) {
        const Vector given = load(gradient(r, c, channel));
        to_scale += given * x(r, c, channel);
        to_bias += given;
        store(gradient(r, c, channel), given * scale);
      }
    store(parameter_gradient + unit.scale + channel, load(parameter_gradient + unit.scale + channel) + to_scale);
    store(parameter_gradient + unit.bias + channel, load(parameter_gradient + unit.bias + channel) + to_bias);
  }
  const float mean_gradient = mean_of(unit.x, [&](int r, int c, int channel) { return load(gradient(r, c, channel)); });
  const float mean_product = mean_of(
      unit.x, [&](int r, int c, int channel) { return load(gradient(r, c, channel)) * x(r, c, channel); });
  for_each_vector(unit.x, [&](int r, int c, int channel) {
    float* at = gradient(r, c, channel);
    store(at, factor * (load(at) - mean_gradient - x(r, c, channel) * mean_product));
  });
}

// The network -------------------------------------------------------------------------------------------------------

void unit_forward(const Unit& unit, const float* parameters, float* memory) {
  const auto layer = [&](const Convolution& layer, const Image& from, Output to) {
    to.bias = parameters + layer.bias;
    convolve(from, parameters + layer.weight, layer.outputs, to, memory);
  };
  layer(unit.first, unit.input, {.out = &unit.wide});
  pool(unit, memory);
  layer(unit.blocks[0], unit.inputs[0], {.relu = &unit.inputs[1]});
  layer(unit.blocks[1], unit.inputs[1], {.sum = &unit.x, .relu = &unit.inputs[2]});
  layer(unit.blocks[2], unit.inputs[2], {.relu = &unit.inputs[3]});
  layer(unit.blocks[3], unit.inputs[3], {.sum = &unit.x});
}

void read_image(const Image& input, const std::uint8_t* image, const float* mean, float* memory) {
  for (int row = 0; row < input.height; ++row) {
    float* to = pixel(memory, input, row, 0);
    for (int i = 0; i < input.width * input.channels; ++i) to[i] = (static_cast<float>(*image++) - *mean++) / 255.0f;
  }
}

// Computes all units; of those after the first only what is not kept, if `kept` is given.
void forward_units(const Network& network, const float* parameters, float* memory, float* features,
                   const float* kept) {
  if (kept) __builtin_memcpy(memory + network.kept, kept, sizeof(float) * network.kept_size);
  for (int index = 0; index < network.depth; ++index) {
    const Unit& unit = network.units[index];
    if (index == 0 || !kept) {
      unit_forward(unit, parameters, memory);
      if (network.normalize) compute_statistics(unit, memory);
    }
    const bool is_last = index + 1 == network.depth;
    for_each_vector(unit.x, [&](int row, int column, int channel) {
      const Vector y = normalized(network, unit, parameters, memory, row, column, channel);
      if (!is_last)
        store(pixel(memory, network.units[index + 1].input, row, column) + channel, y);
      else
        store(features + (static_cast<std::int64_t>(row) * unit.x.width + column) * unit.x.channels + channel, relu(y));
    });
  }
}

void forward(const Network& network, const float* parameters, const std::uint8_t* image, const float* mean,
             float* memory, float* features, float* kept) {
  read_image(network.units[0].input, image, mean, memory);
  forward_units(network, parameters, memory, features, nullptr);
  if (kept) __builtin_memcpy(kept, memory + network.kept, sizeof(float) * network.kept_size);
}

void unit_backward(const Unit& unit, const float* transposed, float* memory, float* parameter_gradient) {
  for (int block = 1; block >= 0; --block) {
    const Convolution &first = unit.blocks[2 * block], &second = unit.blocks[2 * block + 1];
    const Image &x = unit.inputs[2 * block], &hidden = unit.inputs[2 * block + 1];
    add_parameter_gradient(second, hidden, unit.gradient, parameter_gradient, memory);
    convolve(unit.gradient, transposed + second.weight, second.inputs,
             {.positive = &hidden, .out = &unit.hidden_gradient}, memory);
    add_parameter_gradient(first, x, unit.hidden_gradient, parameter_gradient, memory);
    convolve(unit.hidden_gradient, transposed + first.weight, first.inputs, {.positive = &x, .sum = &unit.gradient},
             memory);
  }
  unpool(unit, memory);
  add_parameter_gradient(unit.first, unit.input, unit.wide, parameter_gradient, memory);
}

void backward(const Network& network, const float* parameters, const float* transposed, const std::uint8_t* image,
              const float* mean, const float* gradient, const float* kept, float* memory, float* parameter_gradient) {
  const Unit& last = network.units[network.depth - 1];
  float* features = memory + network.output;
  read_image(network.units[0].input, image, mean, memory);
  forward_units(network, parameters, memory, features, kept);
  for_each_vector(last.x, [&](int row, int column, int channel) {
    const std::int64_t at = (static_cast<std::int64_t>(row) * last.x.width + column) * last.x.channels + channel;
    store(pixel(memory, last.gradient, row, column) + channel,
          load(features + at) > 0.0f ? load(gradient + at) : Vector{});
  });
  for (int index = network.depth - 1; index >= 0; --index) {
    const Unit& unit = network.units[index];
    if (network.normalize) normalize_backward(unit, parameters, memory, parameter_gradient);
    unit_backward(unit, transposed, memory, parameter_gradient);
    if (index > 0)
      convolve(unit.wide, transposed + unit.first.weight, unit.first.inputs,
               {.out = &network.units[index - 1].gradient}, memory);
  }
}

}  // namespace

const Kernels KERNELS = {forward, backward};

}  // namespace byol_explore
