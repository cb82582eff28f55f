// The functions that XLA calls: forward and backward pass of a batch, with the images shared among threads.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"
#include "xla/ffi/api/ffi.h"

namespace byol_explore {
namespace {

namespace ffi = xla::ffi;

// Instruction sets -------------------------------------------------------------------------------------------------

struct Variant {
  const char* name;
  const Kernels* kernels;
  bool supported;
};

const std::vector<Variant>& variants() {  // the fastest first
  static const std::vector<Variant> all = [] {
    std::vector<Variant> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    found.push_back({"avx512", &kAvx512Kernels, avx2 && __builtin_cpu_supports("avx512f")});
    found.push_back({"avx2", &kAvx2Kernels, avx2});
#endif
    found.push_back({"baseline", &kBaselineKernels, true});
    return found;
  }();
  return all;
}

std::atomic<const Variant*>& selected() {
  static std::atomic<const Variant*> variant = [] {
    for (const Variant& each : variants())
      if (each.supported) return &each;
    return &variants().back();
  }();
  return variant;
}

// The network's sizes ----------------------------------------------------------------------------------------------

using Widths = ffi::Span<const std::int64_t>;

class Planner {
 public:
  Network plan(std::int64_t height, std::int64_t width, std::int64_t channels, const Widths& widths, bool normalize) {
    if (widths.size() < 1 || widths.size() > kMaxUnits) throw std::invalid_argument("unsupported number of units");
    if (channels < 1 || channels > 4) throw std::invalid_argument("unsupported number of channels of the images");
    if (height < 1 || width < 1 || height > 4096 || width > 4096) throw std::invalid_argument("unsupported image size");
    Network network;
    network.normalize = normalize;
    network.pixels = height * width * channels;
    int rows = static_cast<int>(height), columns = static_cast<int>(width), inputs = static_cast<int>(channels);
    for (const std::int64_t outputs : widths) {
      if (outputs != 16 && outputs != 32) throw std::invalid_argument("unsupported number of channels of a unit");
      network.units[network.depth++] = unit(rows, columns, inputs, static_cast<int>(outputs), normalize);
      rows = (rows + 1) / 2, columns = (columns + 1) / 2, inputs = static_cast<int>(outputs);
    }
    network.parameters = parameters_;
    network.features = static_cast<std::int64_t>(rows) * columns * inputs;
    network.output = take(network.features);
    for (int index = 0; index < network.depth; ++index) {
      if (index == 1) network.kept = memory_;
      take_kept(network.units[index]);
    }
    network.kept_size = network.depth > 1 ? memory_ - network.kept : 0;
    network.memory = memory_;
    return network;
  }

 private:
  Unit unit(int rows, int columns, int inputs, int outputs, bool normalize) {
    Unit unit;
    const int h = (rows + 1) / 2, w = (columns + 1) / 2;
    unit.first = convolution(inputs, outputs);
    for (Convolution& each : unit.blocks) each = convolution(outputs, outputs);
    if (normalize) unit.scale = parameter(outputs), unit.bias = parameter(outputs);
    unit.input = image(rows, columns, inputs), unit.wide = image(rows, columns, outputs);
    unit.gradient = image(h, w, outputs), unit.hidden_gradient = image(h, w, outputs);
    return unit;
  }

  // Places what the backward pass reads of the forward pass.
  void take_kept(Unit& unit) {
    const Image& like = unit.gradient;
    for (Image* each : {&unit.winner, &unit.x}) *each = image(like.height, like.width, like.channels);
    for (Image& each : unit.inputs) each = image(like.height, like.width, like.channels);
    unit.statistics = take(2);
  }

  Convolution convolution(int inputs, int outputs) {
    Convolution layer{.inputs = inputs, .outputs = outputs};
    layer.weight = parameter(layer.weights()), layer.bias = parameter(outputs);
    return layer;
  }

  Image image(int height, int width, int channels) {
    Image made{.height = height, .width = width, .channels = channels};
    made.offset = take(made.size());
    return made;
  }

  std::int64_t parameter(std::int64_t count) { return (parameters_ += count) - count; }

  std::int64_t take(std::int64_t count) {
    constexpr std::int64_t kLine = 16;  // floats in a cache line: images begin on one
    const std::int64_t begin = memory_;
    memory_ += (count + kLine - 1) / kLine * kLine;
    return begin;
  }

  std::int64_t parameters_ = 0, memory_ = 0;
};

// Rearranges all weights [3, 3, inputs, outputs] for the gradient of the inputs, which is a convolution too: the taps
// in reverse order, inputs and outputs exchanged.
std::vector<float> transpose(const Network& network, const float* parameters) {
  std::vector<float> transposed(network.parameters);
  const auto layer = [&](const Convolution& layer) {
    const float* from = parameters + layer.weight;
    for (int tap = 8; tap >= 0; --tap)
      for (int i = 0; i < layer.inputs; ++i)
        for (int o = 0; o < layer.outputs; ++o)
          transposed[layer.weight + (static_cast<std::int64_t>(tap) * layer.outputs + o) * layer.inputs + i] = *from++;
  };
  for (int index = 0; index < network.depth; ++index) {
    layer(network.units[index].first);
    for (const Convolution& each : network.units[index].blocks) layer(each);
  }
  return transposed;
}

// Memory and threads -----------------------------------------------------------------------------------------------

// Returns memory of this thread that is kept until it needs another size; new memory is zero, as borders must be.
float* thread_memory(const Network& network) {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<float, Free> memory;
  thread_local Network sizes;
  if (!memory || std::memcmp(&sizes, &network, sizeof(Network)) != 0) {
    const std::size_t bytes = (network.memory * sizeof(float) + 63) / 64 * 64;
    memory.reset();
    memory.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (!memory) throw std::bad_alloc();
    std::memset(memory.get(), 0, bytes);
    sizes = network;
  }
  return memory.get();
}

// Runs work(0), ..., work(count - 1) on this thread and on those of the pool that are free.
//
// This thread works too, and waits only for work that has begun: if all threads of the pool wait here, none waits for
// ever. A task of the pool that starts late finds nothing left, and may outlive the call; it shares the state alone.
void run_parallel(ffi::ThreadPool& pool, std::int64_t count, std::function<void(std::int64_t)> work) {
  struct State {
    std::function<void(std::int64_t)> work;
    std::int64_t count;
    std::atomic<std::int64_t> next{0};
    std::mutex mutex;
    std::condition_variable done;
    std::int64_t finished = 0;
    std::exception_ptr error;

    void help() {
      for (std::int64_t index; (index = next.fetch_add(1)) < count;) {
        std::exception_ptr failure;
        try {
          work(index);
        } catch (...) {
          failure = std::current_exception();
        }
        const std::lock_guard<std::mutex> lock(mutex);
        if (failure) error = failure;
        if (++finished == count) done.notify_all();
      }
    }
  };
  auto state = std::make_shared<State>();
  state->work = std::move(work);
  state->count = count;
  for (std::int64_t helper = 1; helper < std::min(pool.num_threads(), count); ++helper)
    pool.Schedule([state] { state->help(); });
  state->help();
  std::unique_lock<std::mutex> lock(state->mutex);
  state->done.wait(lock, [&] { return state->finished == count; });
  if (state->error) std::rethrow_exception(state->error);
}

// The handlers -----------------------------------------------------------------------------------------------------

using Images = ffi::Buffer<ffi::U8, 4>;     // [n, height, width, channels]
using Mean = ffi::Buffer<ffi::F32, 3>;      // [height, width, channels]
using Features = ffi::Buffer<ffi::F32, 2>;  // [n, features]
using Kept = ffi::Buffer<ffi::F32, 2>;      // [at most n, kept_size]: of the first images
using Parameters = ffi::Buffer<ffi::F32, 1>;

Network plan(const Images& images, const Mean& mean, const Parameters& parameters, const Features& features,
             const Kept& kept, const Widths& widths, bool normalize) {
  const auto shape = images.dimensions();
  const Network network = Planner().plan(shape[1], shape[2], shape[3], widths, normalize);
  const auto require = [](bool holds, const char* message) {
    if (!holds) throw std::invalid_argument(message);
  };
  require(static_cast<std::int64_t>(mean.element_count()) == network.pixels, "the mean has not the size of an image");
  require(static_cast<std::int64_t>(parameters.element_count()) == network.parameters, "wrong number of parameters");
  require(features.dimensions()[0] == shape[0] && features.dimensions()[1] == network.features, "wrong features");
  require(kept.dimensions()[0] <= shape[0] && kept.dimensions()[1] == network.kept_size, "wrong size of what is kept");
  return network;
}

// Calls `compute`, and turns what it throws into XLA's error.
template <class Compute>
ffi::Error guarded(const Compute& compute) {
  try {
    compute();
    return ffi::Error::Success();
  } catch (const std::invalid_argument& error) {
    return ffi::Error::InvalidArgument(error.what());
  } catch (const std::exception& error) {
    return ffi::Error::Internal(error.what());
  }
}

template <class Buffer>
auto* row(const Buffer& buffer, std::int64_t index, std::int64_t size) {
  return index < buffer.dimensions()[0] ? buffer.typed_data() + index * size : nullptr;
}

ffi::Error forward(ffi::ThreadPool pool, Widths widths, bool normalize, Images images, Mean mean,
                   Parameters parameters, ffi::Result<Features> features, ffi::Result<Kept> kept) {
  return guarded([&] {
    const Network network = plan(images, mean, parameters, *features, *kept, widths, normalize);
    const Kernels& kernels = *selected().load()->kernels;
    run_parallel(pool, images.dimensions()[0], [&](std::int64_t index) {
      kernels.forward(network, parameters.typed_data(), row(images, index, network.pixels), mean.typed_data(),
                      thread_memory(network), row(*features, index, network.features),
                      row(*kept, index, network.kept_size));
    });
  });
}

// The batch is cut into chunks, each with a sum of its own, by its size alone: the gradient does not depend on the
// number of threads, or on which of them was faster.
constexpr std::int64_t kMinChunk = 4, kMaxChunks = 64;

ffi::Error backward(ffi::ThreadPool pool, Widths widths, bool normalize, Images images, Mean mean,
                    Parameters parameters, Features gradient, Kept kept, ffi::Result<Parameters> parameter_gradient) {
  return guarded([&] {
    const Network network = plan(images, mean, parameters, gradient, kept, widths, normalize);
    if (parameter_gradient->element_count() != parameters.element_count())
      throw std::invalid_argument("wrong number of gradients");
    const Kernels& kernels = *selected().load()->kernels;
    const std::vector<float> transposed = transpose(network, parameters.typed_data());
    const std::int64_t count = images.dimensions()[0];
    const std::int64_t size = std::max(kMinChunk, (count + kMaxChunks - 1) / kMaxChunks);
    const std::int64_t chunks = (count + size - 1) / size;
    std::vector<std::vector<float>> sums(chunks);
    run_parallel(pool, chunks, [&](std::int64_t chunk) {
      std::vector<float> sum(network.parameters);
      for (std::int64_t index = chunk * size; index < std::min(count, (chunk + 1) * size); ++index)
        kernels.backward(network, parameters.typed_data(), transposed.data(), row(images, index, network.pixels),
                         mean.typed_data(), row(gradient, index, network.features),
                         row(kept, index, network.kept_size), thread_memory(network), sum.data());
      sums[chunk] = std::move(sum);
    });
    float* total = parameter_gradient->typed_data();
    std::fill(total, total + network.parameters, 0.0f);
    for (const std::vector<float>& sum : sums)
      for (std::int64_t index = 0; index < network.parameters; ++index) total[index] += sum[index];
  });
}

}  // namespace
}  // namespace byol_explore

#define EXPORT extern "C" __attribute__((visibility("default")))

// Changes with the arguments of the functions below; byol-explore uses only the one that it knows.
EXPORT int byol_explore_native_interface() { return 1; }

EXPORT XLA_FFI_Error* byol_explore_resnet_forward(XLA_FFI_CallFrame*);
EXPORT XLA_FFI_Error* byol_explore_resnet_backward(XLA_FFI_CallFrame*);

XLA_FFI_DEFINE_HANDLER_SYMBOL(byol_explore_resnet_forward, byol_explore::forward,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attr<byol_explore::Widths>("widths")
                                  .Attr<bool>("normalize")
                                  .Arg<byol_explore::Images>()
                                  .Arg<byol_explore::Mean>()
                                  .Arg<byol_explore::Parameters>()
                                  .Ret<byol_explore::Features>()
                                  .Ret<byol_explore::Kept>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(byol_explore_resnet_backward, byol_explore::backward,
                              xla::ffi::Ffi::Bind()
                                  .Ctx<xla::ffi::ThreadPool>()
                                  .Attr<byol_explore::Widths>("widths")
                                  .Attr<bool>("normalize")
                                  .Arg<byol_explore::Images>()
                                  .Arg<byol_explore::Mean>()
                                  .Arg<byol_explore::Parameters>()
                                  .Arg<byol_explore::Features>()
                                  .Arg<byol_explore::Kept>()
                                  .Ret<byol_explore::Parameters>());

// Returns the number of floats per image that the forward pass can keep for the backward pass, or -1 for a network that
// is not supported.
EXPORT std::int64_t byol_explore_resnet_kept_size(std::int64_t height, std::int64_t width, std::int64_t channels,
                                                      const std::int64_t* widths, std::int64_t depth, bool normalize) {
  try {
    const byol_explore::Widths span(widths, static_cast<std::size_t>(depth));
    return byol_explore::Planner().plan(height, width, channels, span, normalize).kept_size;
  } catch (const std::invalid_argument&) {
    return -1;
  }
}

// Returns the name of the instruction set in use.
EXPORT const char* byol_explore_instruction_set() { return byol_explore::selected().load()->name; }

// Uses another instruction set, for tests. Returns 0 if this processor does not support it.
EXPORT int byol_explore_use_instruction_set(const char* name) {
  for (const byol_explore::Variant& each : byol_explore::variants())
    if (each.supported && std::strcmp(each.name, name) == 0) {
      byol_explore::selected() = &each;
      return 1;
    }
  return 0;
}
