#include "device/graph.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <ranges>

#include "device/launch.h"

// Graphs: captured from streams, launched as one piece of work.

namespace emulator {

// [dev-capture] A capture keeps what is launched on one stream or several.
// A call that needs the work done breaks it, since nothing is done before a
// launch.
struct Node {
  Work work;
  uint64_t stream;            // where it was launched
  std::vector<size_t> after;  // the nodes that it depends on
};

static uint64_t next_capture_number() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

struct Capture {
  std::mutex mutex;  // guards all below, and the branches of its streams
  std::vector<Node> nodes;
  std::vector<StreamRef> streams;  // the first began it; none once it ended
  std::string broken;              // why, unless empty
  const uint64_t number = next_capture_number();
};
// [/dev-capture]

namespace {

using GraphRef = std::shared_ptr<Capture>;

orError_t break_capture(Capture& capture, const char* why) {
  if (capture.broken.empty()) {
    capture.broken = why;
  }
  return fail(orErrorStreamCaptureUnsupported, "%s", why);
}

orError_t report_broken(const Capture& capture) {
  return fail(
      orErrorStreamCaptureInvalidated,
      "the capture is broken, and gives no graph: %s",
      capture.broken.c_str());
}

// Of two branches that meet.
void merge(std::vector<size_t>* into, const std::vector<size_t>& from) {
  into->insert(into->end(), from.begin(), from.end());
  std::ranges::sort(*into);
  const auto twice = std::ranges::unique(*into);
  into->erase(twice.begin(), twice.end());
}

}  // namespace

// [dev-capture-keep] A node comes after the last one of its stream.
// It also comes after those for whose events the stream has waited since.
orError_t keep(orStream& stream, Work&& work) {
  Branch& branch = *stream.branch;
  Capture& capture = *branch.capture;
  const std::lock_guard lock(capture.mutex);
  if (!capture.broken.empty()) {
    return report_broken(capture);
  }
  capture.nodes.push_back({std::move(work), stream.number, branch.after});
  branch.after = {capture.nodes.size() - 1};
  return orSuccess;
}

orError_t join_capture(const StreamRef& stream, const Branch& from) {
  const std::lock_guard lock(stream->mutex);
  Capture& capture = *from.capture;
  const std::lock_guard capture_lock(capture.mutex);
  if (capture.streams.empty()) {
    return fail(
        orErrorInvalidResourceHandle,
        "the event was recorded in a capture that has ended; a graph's work "
        "cannot be waited for by its events");
  }
  const bool elsewhere =
      stream->branch != nullptr && stream->branch->capture != from.capture;
  if (elsewhere || stream->number == 0 || holds(*stream)) {
    return break_capture(
        capture,
        "one of its events was waited for in another capture, on a default "
        "stream, or by a thread that has its turn");
  }
  if (stream->branch == nullptr) {
    stream->branch = std::make_unique<Branch>(Branch{from.capture, {}});
    stream->state.fetch_or(kCapturing);
    capture.streams.push_back(stream);
  }
  merge(&stream->branch->after, from.after);
  return orSuccess;
}
// [/dev-capture-keep]

// NULL where what this thread launches is not captured.
static std::shared_ptr<Branch> branch_of(orStream& stream) {
  const std::lock_guard lock(stream.mutex);
  if (stream.branch == nullptr || holds(stream)) {
    return nullptr;
  }
  const std::lock_guard capture_lock(stream.branch->capture->mutex);
  return std::make_shared<Branch>(*stream.branch);
}

MomentRef mark_captured(orStream& stream) {
  auto moment = std::make_shared<Moment>();
  moment->branch = branch_of(stream);
  return moment->branch != nullptr ? moment : mark(stream);  // it just ended
}

orError_t check_not_captured(Device* device, const char* call) {
  for (const StreamRef& stream : streams_of(device)) {
    if (const orError_t error = check_not_captured(*stream, call)) {
      return error;
    }
  }
  return orSuccess;
}

orError_t check_not_captured(const MomentRef& moment, const MomentRef& other) {
  for (const Moment* const each : {moment.get(), other.get()}) {
    if (each != nullptr && each->branch != nullptr) {
      return fail(
          orErrorStreamCaptureUnsupported,
          "the event was recorded in a capture, so it orders the work of a "
          "graph and says nothing to the host");
    }
  }
  return orSuccess;
}

orError_t check_not_captured(orStream& stream, const char* what) {
  const std::shared_ptr<Branch> branch =
      what != nullptr && is_capturing(stream) ? branch_of(stream) : nullptr;
  if (branch == nullptr) {
    return orSuccess;
  }
  char why[256];
  std::snprintf(
      why,
      sizeof(why),
      "%s cannot be captured: it needs the work of a stream of device %d done, "
      "which is only kept until the graph is launched",
      what,
      stream.device->index);
  const std::lock_guard lock(branch->capture->mutex);
  return break_capture(*branch->capture, why);
}

namespace {

// Ends the capture if it began on `stream`: nothing joins it any more.
std::vector<StreamRef> take_streams(Capture& capture, const StreamRef& stream) {
  const std::lock_guard lock(capture.mutex);
  const bool began = !capture.streams.empty() && capture.streams[0] == stream;
  return began ? std::exchange(capture.streams, {}) : std::vector<StreamRef>();
}

// Whether all work of the capture comes before what its first stream came to.
bool is_joined(const Capture& capture, std::vector<size_t> next) {
  std::vector<bool> reached(capture.nodes.size());
  while (!next.empty()) {
    const size_t node = next.back();
    next.pop_back();
    if (!reached[node]) {
      reached[node] = true;
      merge(&next, capture.nodes[node].after);
    }
  }
  return std::ranges::all_of(reached, std::identity());
}

// What was pending on a stream before its capture may still be so.
std::unique_ptr<Branch> leave_capture(orStream& stream) {
  const std::lock_guard lock(stream.mutex);
  stream.state.fetch_and(~kCapturing);
  settle(stream);
  stream.changed.notify_all();
  return std::move(stream.branch);
}

// [dev-graph-replay] A launch runs the nodes in the order of their capture.
// Each comes after all that it depends on, so one thread does for all branches.
orError_t replay(const Capture& graph, orStream& stream) {
  for (const Node& node : graph.nodes) {
    Label label = node.work.label;
    const Announced announced(stream, &label);
    const orError_t answer =
        run(stream, label, [&] { return run_work(node.work); });
    if (answer != orSuccess) {
      const auto said = label.name + complaint(": it failed");
      orSetKernelError(said.c_str());
      return answer;
    }
  }
  return orSuccess;
}
// [/dev-graph-replay]

struct Replay {
  GraphRef graph;
  StreamRef stream;

  orError_t operator()() const {
    const std::lock_guard lock(graph->mutex);  // one launch at a time
    return replay(*graph, *stream);
  }
  static orError_t run(void* args) {
    return (*static_cast<const Replay*>(args))();
  }
  static void release(void* args) {
    delete static_cast<Replay*>(args);
  }
};

Result<GraphRef> find_graph(Result<Machine*> machine, orGraph_t handle) {
  if (!machine) {
    return machine.error();
  }
  const Result<std::shared_ptr<orGraph>> found = machine->graphs.find(handle);
  return found ? found->capture : Result<GraphRef>(found.error());
}

}  // namespace

}  // namespace emulator

using namespace emulator;

// [dev-capture-begin] From here on the stream looks busy to every launch.
// So captured work takes the slow path, and no other launch pays for it.
orError_t orStreamBeginCapture(orStream_t stream) {
  const auto begin = [](const StreamRef& place) {
    if (place->number == 0) {
      return fail(
          orErrorStreamCaptureUnsupported,
          "orStreamBeginCapture: on a default stream it would keep what every "
          "thread launches there; make another one current, and launch the "
          "graph where you like");
    }
    auto capture = std::make_shared<Capture>();
    capture->streams.push_back(place);
    const std::lock_guard lock(place->mutex);
    if (place->branch != nullptr || holds(*place)) {
      return fail(
          orErrorNotPermitted,
          "orStreamBeginCapture: the stream is being captured already, or this "
          "thread holds its turn");
    }
    place->branch = std::make_unique<Branch>(Branch{std::move(capture), {}});
    place->state.fetch_or(kCapturing);
    return orSuccess;
  };
  return with_stream("orStreamBeginCapture", use_machine(), stream, begin);
}
// [/dev-capture-begin]

// [dev-capture-end] Ends the capture on all its streams, even after an error.
orError_t orStreamEndCapture(orStream_t stream, orGraph_t* graph) {
  if (graph == nullptr) {
    return fail(orErrorInvalidValue, "orStreamEndCapture: graph is NULL");
  }
  const Result<Machine*> machine = get_machine();
  const Result<StreamRef> found = find_stream(machine, stream);
  if (!found) {
    return found.error();
  }
  const std::shared_ptr<Branch> branch = branch_of(*found);
  const auto streams = branch == nullptr
                           ? std::vector<StreamRef>()
                           : take_streams(*branch->capture, found.value());
  if (streams.empty()) {
    return fail(
        orErrorNotPermitted,
        "orStreamEndCapture: no capture began on this stream");
  }
  return guarded("orStreamEndCapture", [&] {
    const GraphRef& capture = branch->capture;
    std::unique_ptr<Branch> last;  // of the stream that began
    for (const StreamRef& member : streams | std::views::reverse) {
      last = leave_capture(*member);
    }
    const std::lock_guard lock(capture->mutex);
    if (capture->broken.empty() && !is_joined(*capture, last->after)) {
      capture->broken =
          "work of another stream was not joined: the stream that the "
          "capture began on must wait for an event recorded behind it";
    }
    if (!capture->broken.empty()) {
      return report_broken(*capture);
    }
    *graph = machine->graphs.add(
        [&](orGraph* created, orGraph_t) { created->capture = capture; });
    return orSuccess;
  });
}
// [/dev-capture-end]

uint64_t orStreamGetCapture(orStream_t stream) {
  const Result<StreamRef> found = find_stream(get_machine(), stream);
  const auto branch = found ? branch_of(*found) : nullptr;
  return branch == nullptr ? 0 : branch->capture->number;
}

orError_t orGraphLaunch(orGraph_t graph, orStream_t stream) {
  const auto launch_graph = [&](const StreamRef& place) {
    const Result<GraphRef> found = find_graph(place->device->machine, graph);
    if (!found) {
      return found.error();
    }
    Label label{orTraceGraph, "graph"};
    const Replay replay{found.value(), place};
    return launch(place, label, false, replay, [&] {
      return Work{
          label, &Replay::run, nullptr, {new Replay(replay), &Replay::release}};
    });
  };
  return with_stream("orGraphLaunch", use_machine(), stream, launch_graph);
}

orError_t orGraphDestroy(orGraph_t graph) {
  const Result<Machine*> machine = get_machine();
  const Result<GraphRef> found = find_graph(machine, graph);
  if (!found) {
    return found.error();
  }
  machine->graphs.remove(graph);
  return orSuccess;
}

// [dev-graph-nodes] Writes a graph's nodes as a file for Graphviz.
orError_t orGraphDebugDotPrint(orGraph_t graph, const char* path) {
  const Result<GraphRef> found = find_graph(get_machine(), graph);
  if (!found) {
    return found.error();
  }
  std::ofstream file(path == nullptr ? "" : path);
  file << "digraph graph {\n  node [shape=box];\n";
  for (size_t place = 0; const Node& node : found->nodes) {
    file << "  " << place << " [label=\"" << node.work.label.name
         << "\\nstream " << node.stream << "\"];\n";
    for (const size_t before : node.after) {
      file << "  " << before << " -> " << place << ";\n";
    }
    ++place;
  }
  file << "}\n";
  return file.flush().good() ? orSuccess
                             : fail(
                                   orErrorInvalidValue,
                                   "orGraphDebugDotPrint: cannot write to %s",
                                   path == nullptr ? "NULL" : path);
}
// [/dev-graph-nodes]
