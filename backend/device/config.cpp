#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "device/config.h"

// The environment, read once. A value that is not understood is refused, not
// guessed at: a misspelt capacity must not become the default one.

namespace emulator {

namespace {

constexpr size_t kMaxCapacity = size_t{1} << 40;

// A whole number of at most `most`, which is all of `text`.
bool parse_number(std::string_view text, size_t most, size_t* number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc{} && stop == end && *number <= most;
}

// Bytes, with K, M or G for powers of 1024.
bool parse_bytes(std::string_view text, size_t most, size_t* bytes) {
  constexpr std::string_view suffixes = "KMG";
  size_t unit = 1;
  if (!text.empty()) {
    const size_t place = suffixes.find(text.back());
    if (place != std::string_view::npos) {
      unit = size_t{1} << (10 * (place + 1));
      text.remove_suffix(1);
    }
  }
  // The bound is divided, so that the product cannot overflow.
  if (!parse_number(text, most / unit, bytes)) {
    return false;
  }
  *bytes *= unit;
  return true;
}

}  // namespace

// [dev-read-config] Each variable of the devices is read here alone.
Config read_config() {
  Config config;
  config.page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto refuse = [&](const char* name, const std::string& expected) {
    config.problem =
        std::string(name) + " is '" + getenv(name) + "'; expected " + expected;
  };
  size_t number = 0;
  if (const char* text = getenv("OPENREG_DEVICE_COUNT")) {
    if (!parse_number(text, kMaxDevices, &number)) {
      refuse("OPENREG_DEVICE_COUNT", "a whole number from 0 to 16");
    }
    config.device_count = static_cast<int>(number);
  }
  if (const char* text = getenv("OPENREG_DEVICE_MEMORY")) {
    if (!parse_bytes(text, kMaxCapacity, &number) || number < config.page) {
      refuse(
          "OPENREG_DEVICE_MEMORY",
          "bytes such as 512M, from " + std::to_string(config.page) +
              " (one page) to 1024G");
    }
    config.capacity = (number + config.page - 1) / config.page * config.page;
  }
  if (const char* text = getenv("OPENREG_LAUNCH")) {
    const std::string_view mode = text;
    config.launch = mode == "async"      ? Launch::kAsync
                    : mode == "blocking" ? Launch::kBlocking
                                         : Launch::kAuto;
    if (config.launch == Launch::kAuto && mode != "auto") {
      refuse("OPENREG_LAUNCH", "auto, async or blocking");
    }
  }
  if (const char* text = getenv("OPENREG_SEGV_HANDLER")) {
    config.explain_faults = std::string_view(text) == "1";
    if (!config.explain_faults && std::string_view(text) != "0") {
      refuse("OPENREG_SEGV_HANDLER", "0 or 1");
    }
  }
  return config;
}
// [/dev-read-config]

}  // namespace emulator
