// [exports-solution] A namespace without a name is that of one file.
namespace {

int calls = 0;

int add(int a, int b) {
  ++calls;
  return a + b;
}

}  // namespace

extern "C" int orTwice(int number) {
  return add(number, number);
}

extern "C" int orCalls() {
  return calls;
}
// [/exports-solution]

// expect: ok
