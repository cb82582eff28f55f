// The residual network of the paper's image encoders: sizes, offsets into memory, and the two functions that
// kernels.cc compiles once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace byol_explore {

constexpr int kMaxUnits = 8;

// An image with a border of one zero on each side, [height + 2, width + 2, channels], as an offset in floats into the
// memory of a thread. Convolutions read the border instead of testing for the edge; nothing writes to it.
struct Image {
  std::int64_t offset = 0;
  int height = 0, width = 0, channels = 0;
  std::int64_t row() const { return static_cast<std::int64_t>(width + 2) * channels; }
  std::int64_t size() const { return (height + 2) * row(); }
};

// Offsets of a 3 x 3 convolution's parameters: weight [3, 3, inputs, outputs], then bias [outputs].
struct Convolution {
  std::int64_t weight = 0, bias = 0;
  int inputs = 0, outputs = 0;
  std::int64_t weights() const { return 9LL * inputs * outputs; }
};

// Convolution, max-pooling, two residual blocks of two convolutions, group normalisation with one group.
struct Unit {
  Convolution first, blocks[4];
  std::int64_t scale = 0, bias = 0;  // of the normalisation
  std::int64_t statistics = 0;       // two floats: its mean and 1 / standard deviation
  Image input, wide, winner, x;      // wide: before pooling; winner: which pixel of each window is the largest
  Image inputs[4];                   // of the blocks' convolutions, after ReLU
  Image gradient, hidden_gradient;   // of x, and of the first convolution's output in a block
};

struct Network {
  bool normalize = false;
  int depth = 0;  // number of units
  Unit units[kMaxUnits];
  std::int64_t pixels = 0, parameters = 0, features = 0;  // numbers of an image, of all parameters, of the output
  std::int64_t output = 0;  // offset of a copy of the features
  // What the backward pass can take over from the forward pass, unless it computes it again: offset and size. Units
  // after the first have three times the arithmetic for the same memory, so the first one is always computed again.
  std::int64_t kept = 0, kept_size = 0;
  std::int64_t memory = 0;  // floats that a thread needs
};

struct Kernels {
  // Encodes one image. `memory` has network.memory floats, zero in the borders. Copies what the backward pass can take
  // over to `kept`, unless that is null.
  void (*forward)(const Network& network, const float* parameters, const std::uint8_t* image, const float* mean,
                  float* memory, float* features, float* kept);
  // Adds the gradient of the parameters, given that of the features, to `parameter_gradient`. `transposed` are the
  // parameters with weights for the gradient of the inputs; `kept` is what `forward` wrote, or null.
  void (*backward)(const Network& network, const float* parameters, const float* transposed, const std::uint8_t* image,
                   const float* mean, const float* gradient, const float* kept, float* memory,
                   float* parameter_gradient);
};

extern const Kernels kBaselineKernels, kAvx2Kernels, kAvx512Kernels;

}  // namespace byol_explore
